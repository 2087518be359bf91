"""Where the model worlds' seeds come from, and what becomes of one that fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import simulation_seeds
from tests.simulation_seeds import BASE, KEPT, ONE, Seeds


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of kept seeds of this test's own."""
    monkeypatch.setattr(simulation_seeds, "KEPT", tmp_path / "failed-seeds.txt")
    monkeypatch.setattr(simulation_seeds, "_failed", [])
    monkeypatch.setattr(simulation_seeds, "_drawn", {})
    monkeypatch.delenv(ONE, raising=False)
    simulation_seeds.KEPT.write_text("# a comment\n\nmodel 77\nother 78\n")
    return simulation_seeds.KEPT


def fails_with_5(seed: int) -> None:
    if seed == 5:
        raise AssertionError("the world broke")


def test_every_run_has_the_same_seeds_and_the_kept_ones(kept: Path) -> None:
    assert Seeds("model").first(3) == [0, 1, 2, 77]
    assert Seeds("model").first(80)[-1] == 79
    assert Seeds("third").first(2) == [0, 1]


def test_a_night_has_new_seeds_that_its_base_repeats(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BASE, "1")
    first = Seeds("model").new(50)
    assert first == Seeds("model").new(50)
    assert first != Seeds("other").new(50)
    monkeypatch.setenv(BASE, "2")
    assert not {*first} & {*Seeds("model").new(50)}


def test_each_run_draws_a_base() -> None:
    assert int(simulation_seeds.os.environ[BASE]) < 2**32


def test_a_seed_that_fails_is_kept_and_named(kept: Path) -> None:
    seeds = Seeds("model")
    with pytest.raises(AssertionError) as failed:
        seeds.live(range(10), fails_with_5)
    [note] = failed.value.__notes__
    assert "seed 5 of model" in note
    assert (
        "ZKCONSUMER_SEED=5 python -m pytest 'tests/unit/project/test_simulation_seeds.py::test_a_seed_that_fails"
        in note
    )
    assert kept.read_text().endswith("other 78\nmodel 5\n")
    assert seeds.first(1) == [0, 77, 5]
    with pytest.raises(AssertionError):
        seeds.live([5], fails_with_5)
    assert kept.read_text().count("model 5\n") == 1


def test_one_seed_is_replayed_alone_and_not_kept_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ONE, "5")
    seeds = Seeds("model")
    assert seeds.first(10) == seeds.new(10) == [5]
    with pytest.raises(AssertionError):
        seeds.live(seeds.new(10), fails_with_5)
    assert "model 5" not in kept.read_text()


def test_the_summary_says_the_base_and_what_failed(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BASE, "123")
    seeds = Seeds("model")
    with pytest.raises(AssertionError):
        seeds.live([*seeds.new(7), 5], fails_with_5)
    lines: list[str] = []

    class Reporter:
        write_line = lines.append

    simulation_seeds.pytest_terminal_summary(Reporter())  # type: ignore[arg-type]
    assert lines[0] == "new seeds: 7 of model; repeat them with ZKCONSUMER_SEED_BASE=123"
    assert lines[1].endswith(": model 5")


def test_every_kept_seed_is_of_a_model_that_there_is() -> None:
    known = {line.split()[0] for line in KEPT.read_text().splitlines() if line and not line.startswith("#")}
    sources = "".join(path.read_text() for path in KEPT.parent.parent.rglob("test_*.py"))
    models = set(re.findall(r'Seeds\(f?"([^"{]+)', sources))
    assert [name for name in known if not name.startswith(tuple(models))] == []
