"""Random messages of ours, read and written again by Kafka's own classes: the bytes must be the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.sandbox_fixtures import require_releases
from tests.wire_message_samples import EVERY_VERSION, messages
from tests.wire_oracles.layouts import RELEASES, STORED, TABLES, parsed, recorded_of
from zkconsumer.testing.sandbox import ensure_artifact_set, java
from zkconsumer.wire.schemas.message_schema import encoder

EXAMPLES = 6
TIMEOUT_S = 100


@cache
def ours() -> dict[tuple[str, str, int], list[str]]:
    """(name, request or response or stored, version) → lines for ``Recode.java``."""
    classes = {name: package + name for package, names in STORED.items() for name in names}
    lines = {}
    for api, version in EVERY_VERSION:
        for what, cls in (("request", api.request), ("response", api.response)):
            bodies = some(cls, version, api.is_flexible(version))
            lines[api.name, what, version] = [f"{what} {api.key} {version} {body.hex() or '-'}" for body in bodies]
    for name, (cls, highest, flexible_from) in TABLES.items():
        for version in range(highest + 1):
            bodies = some(cls, version, version >= flexible_from)
            lines[name, "stored", version] = [f"stored {classes[name]} {version} {body.hex()}" for body in bodies]
    return lines


def some(cls: type, version: int, flexible: bool) -> Iterator[bytes]:
    """Messages of a class, the same in every run."""
    drawn: list[Any] = []
    draw: Callable[[], None] = given(body=messages(cls, version))(drawn_into(drawn))
    healthy = list(HealthCheck)
    settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=healthy)(
        draw
    )()
    write = encoder(cls, version, flexible)
    for body in drawn:
        out = bytearray()
        write(out, body)
        yield bytes(out)


def drawn_into(drawn: list[Any]) -> Callable[..., None]:
    def draw(body: Any) -> None:
        drawn.append(body)

    return draw


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
def test_kafkas_own_classes_read_our_bytes_and_write_them_again(release: str) -> None:
    require_releases(release)
    known = parsed(recorded_of(release).read_text()).keys()
    lines = [line for kind, of_kind in ours().items() if kind in known for line in of_kind]
    jars = ensure_artifact_set(release)
    command = [java.find_jdk().java, "-cp", f"{java.compiled(('Recode',), jars)}:{jars}/*", "Recode"]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    wrong = [(line, answer) for line, answer in zip(lines, answers, strict=True) if line.split()[3] != answer]
    assert not wrong, f"{len(wrong)} of {len(lines)}, first: {wrong[:3]}"
