"""Programs as users write them pass ``mypy --strict``, import the three public modules alone, and run on fakes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge import CoordinatorConsumerConfig, KafkaConsumer
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import DEADLINE_MS, MakeConnector, wait_until
from tests.typed_programs import coordinator, java_names, listener, one_partition, polling
from zkconsumer import OffsetAndMetadata, javaapi
from zkconsumer import connector as connector_module
from zkconsumer.types import TopicPartition

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted((ROOT / "tests" / "typed_programs").glob("[!_]*.py"))
PUBLIC = {"zkconsumer", "zkconsumer.javaapi", "bridge"}
CONFIG = "[mypy]\nstrict = true\nwarn_unreachable = true\nfollow_imports = silent\n"

HANDLE = """\
from typing import Any

from zkconsumer import MessageAndMetadata


def handle(message: MessageAndMetadata[Any, Any]) -> None:
    seen.append((message.topic, message.partition, message.offset, message.value))
    if len(seen) == wanted:
        raise KeyboardInterrupt  # the program of the page reads until it is stopped


seen: list[tuple[str, int, int, bytes | None]] = []
wanted = 3
"""


def snippet_of_the_readme() -> str:
    """The program in README.md, and the function that it calls."""
    page = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"## In your program\n+```python\n(.*?)```", page, re.DOTALL)
    assert found is not None, "README.md shows a program"
    return HANDLE + "\n" + found[1]


def mypy(cache: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    """The package counts as a library: its own errors are found by the project's own run of mypy."""
    config = cache / "mypy.ini"
    config.write_text(CONFIG, "utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(cache / "cache")]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run([*command, *map(str, files)], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Kept from one run of the tests to the next: with it the check takes a second, without it some ten."""
    kept = getattr(request.config, "cache", None)
    return tmp_path if kept is None else Path(kept.mkdir("mypy-of-programs"))


@pytest.mark.timeout(600)
def test_every_program_passes_mypy_strict_and_a_wrong_one_does_not(cache: Path, tmp_path: Path) -> None:
    readme = tmp_path / "readme_program.py"
    readme.write_text(snippet_of_the_readme(), "utf-8")
    checked = mypy(cache, *PROGRAMS, readme)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"no issues found in {len(PROGRAMS) + 1} source files" in checked.stdout
    wrong = tmp_path / "wrong_program.py"
    wrong.write_text(
        "from zkconsumer import ConsumerRebalanceListener, NoSuchName\n"
        "class Half:\n"
        "    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None: ...\n"
        "listener: ConsumerRebalanceListener = Half()\n",
        "utf-8",
    )
    checked = mypy(cache, wrong)
    assert 'Module "zkconsumer" has no attribute "NoSuchName"' in checked.stdout
    assert "before_starting_fetchers" in checked.stdout


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_imports_the_public_modules_alone(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    ours = {name for name in imported if name.partition(".")[0] in ("zkconsumer", "bridge", "tests")}
    assert ours
    assert ours <= PUBLIC


# --- they run ---------------------------------------------------------------------------------------------------


def test_the_program_of_the_readme_reads_and_commits(
    world: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_topic("clicks")
    world.cluster.append("clicks", 0, [b"a", b"b", b"c"])
    settings = {"zookeeper.connect": ADDRESS, "group.id": "g1", "auto.offset.reset": "smallest"}
    (tmp_path / "consumer.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    monkeypatch.chdir(tmp_path)
    made = partial(connector_module.ZookeeperConsumerConnector, store=world.store, connect=world.connect)
    monkeypatch.setattr(connector_module, "ZookeeperConsumerConnector", made)
    names: dict[str, Any] = {}
    with pytest.raises(KeyboardInterrupt):
        exec(compile(snippet_of_the_readme(), "README.md", "exec"), names)
    assert names["seen"] == [("clicks", 0, 0, b"a"), ("clicks", 0, 1, b"b"), ("clicks", 0, 2, b"c")]
    assert world.offsets("g1", "clicks") == {0: 2}, "the record in hand is not covered when an error comes out"


def test_the_listener_counts_what_each_partition_brought(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic("clicks", 2)
    for partition in range(2):
        world.cluster.append("clicks", partition, [b"a", b"b"])
    counts = listener.Counts()
    one = connect(consumer_id="a", consumer_timeout_ms=300)
    [stream] = listener.listen(one, counts, "clicks")
    total = 0

    def has_read_all() -> bool:
        nonlocal total
        total += listener.read(stream, counts)
        return total == 4

    wait_until(has_read_all, "everything is read")
    both = [TopicPartition("clicks", number) for number in range(2)]
    assert counts.read == dict.fromkeys(both, 2)
    connect(consumer_id="b").create_message_streams({"clicks": 1})
    wait_until(lambda: len(counts.read) == 1, "it gives one up")
    assert counts.released == [both[1]]
    assert str(counts.owners[both[1]]) == "g1_b-0"
    world.zookeeper.expire(world.store_of(one))
    wait_until(lambda: counts.lost == [both[0]], "the other one is reported as lost")


def test_the_reader_of_one_partition_finds_its_leader_and_its_records(world: FakeEnvironment) -> None:
    world.cluster.create_topic("clicks", 2)
    world.cluster.append("clicks", 1, [b"a", b"b", b"c"])
    world.cluster.delete_before("clicks", 1, 1)
    host, port = world.cluster.address(0)[1:]
    found = one_partition.read(host, port, TopicPartition("clicks", 1), world.connect)
    assert [(record.offset, record.value) for record in found] == [(1, b"b"), (2, b"c")]


def test_the_program_in_the_old_names_reads_and_knows_the_owners(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic("clicks", 2)
    world.cluster.append("clicks", 0, [b"a"])
    world.cluster.append("clicks", 1, [b"b"])
    old = javaapi.ConsumerConnector(connect(consumer_id="a"))
    owners = java_names.Owners()
    assert sorted(java_names.read(old, owners, "clicks", 2)) == [(0, "a"), (1, "b")]
    assert owners.threads == {"clicks": {0: "g1_a-0", 1: "g1_a-0"}}
    assert world.offsets("g1", "clicks") == {0: 1, 1: 1}


def test_the_member_of_a_coordinators_group_reads_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "1"}) as broker:
        broker.create_topic("clicks", 2)
        for number in range(2):
            broker.append("clicks", number, [b"%d" % number])
        config = CoordinatorConsumerConfig(
            group_id="g", bootstrap_servers=broker.bootstrap, auto_offset_reset="smallest",
            consumer_timeout_ms=DEADLINE_MS,
        )  # fmt: skip
        own, alerts = coordinator.Own(), coordinator.Alerts()
        with coordinator.make(config, {"session.timeout.ms": DEADLINE_MS}, alerts) as connector:
            found = coordinator.read(connector, own, "cl.*", 2)
            assert own.threads.keys() == found.keys()
            assert coordinator.where(connector).keys() == {"clicks/0", "clicks/1"}
            connector._member.membership.thread_died("a-thread", ValueError("bad luck"))
        assert found == {TopicPartition("clicks", number): [str(number)] for number in range(2)}
        assert alerts.seen == ["ThreadFailedError"]


def test_the_program_with_poll_reads_and_commits() -> None:
    with EmbeddedBroker(properties={"offsets.topic.num.partitions": "1"}) as broker:
        broker.create_topic("clicks", 2)
        for partition in range(2):
            broker.append("clicks", partition, [number.to_bytes(8, "big") for number in range(5)])
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        assert polling.total(settings, "clicks", 10) == 20
        both = [TopicPartition("clicks", partition) for partition in range(2)]
        with KafkaConsumer[bytes, bytes](settings) as consumer:
            assert consumer.committed(both) == dict.fromkeys(both, OffsetAndMetadata(5, leader_epoch=0))
