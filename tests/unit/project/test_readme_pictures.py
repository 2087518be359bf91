"""The recording at the head of the README shows what the demo prints now."""

from __future__ import annotations

from tests.readme_pictures import DEMO, PAGE, demo_lines, picture_of

PICTURE_BYTES_MAX = 300_000


def test_the_recording_is_what_the_demo_prints() -> None:
    assert DEMO.read_text(encoding="utf-8") == picture_of(demo_lines()), "run python tests/readme_pictures.py"


def test_the_pictures_are_small() -> None:
    for each in (DEMO, PAGE):
        assert 0 < each.stat().st_size < PICTURE_BYTES_MAX
