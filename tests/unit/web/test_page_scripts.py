"""What the scripts of the page show after some messages, in node and without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bridge.web import page_app
from bridge.web.read_state import ReadState
from tests.debian_packages import NPM
from tests.requirement_fixtures import require_program

PROGRAM = Path(__file__).with_name("page_scripts.mjs")
TOTAL = {"known": 3, "unknown": 0, "without_offset": 0, "without_log": 0, "partitions": 1}
GROUP = {
    "rows": [], "remarks": [], "total": TOTAL, "topics": [], "all_members": [], "unowned": 0, "seconds_behind": None,
    "authority": "zookeeper", "storage": "unknown", "active": True, "coordinator_group": None, "not_known": [],
    "next_steps": [],
}  # fmt: skip


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The scripts as node finds them."""
    require_program(NPM)  # which needs node
    for name, body in page_app.static_files().items():
        if name.endswith(".js"):
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(body.decode().replace('"/static/', '"./'))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return tmp_path


def shown(scripts: Path, kind: str, *messages: tuple[str, object]) -> list[dict[str, Any]]:
    """What the page shows after each message."""
    node = shutil.which("node")
    assert node is not None
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    done = subprocess.run(
        [node, str(PROGRAM), str(scripts), kind], input=lines, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_list_says_why_it_cannot_be_read(scripts: Path) -> None:
    failed = ReadState().with_error("ZooKeeper does not answer", 1_000)
    good = ReadState().with_document({}, 0)
    later = good.with_error("ZooKeeper does not answer", 61_000)
    document = {"groups": [], "not_known": ["a broker does not answer"]}
    first, read, again = shown(
        scripts,
        "list",
        ("states", {"list": failed.to_json()}),
        ("list", {"document": document}),
        ("states", {"list": later.to_json()}),
    )
    assert "ZooKeeper does not answer (since 1970-01-01 00:00:01 UTC)" in first["text"]
    assert "a broker does not answer" in read["text"]
    assert "ZooKeeper does not answer (since 1970-01-01 00:01:01 UTC" in again["text"]
    assert "a broker does not answer" in again["text"]


def test_a_group_that_exists_again_has_its_facts_again(scripts: Path) -> None:
    states = [("states", {"group": state.to_json()}) for state in (ReadState().without_group(1_000), ReadState())]
    group, none = ("group", {"document": GROUP}), ("group", {"document": None})
    before, _, gone, _, again = shown(scripts, "group", group, none, states[0], states[1], group)
    assert "Authority zookeeper" in before["text"]
    assert "Authority" not in gone["text"]
    assert "Authority zookeeper" in again["text"]


@pytest.mark.parametrize("topic", ["constructor", "__proto__"])
def test_a_new_topic_may_have_the_name_of_a_property(scripts: Path, topic: str) -> None:
    *_, last = shown(
        scripts,
        "group",
        ("history", {"at_ms": [1], "total": [5], "topics": {"clicks": [5]}}),
        ("history-patch", {"at_ms": [2], "total": [8], "topics": {"clicks": [5], topic: [3]}}),
    )
    assert last["history"]["topics"] == {"clicks": [5, 5], topic: [None, 3]}
