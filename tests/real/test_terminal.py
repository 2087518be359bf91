"""The commands in a real terminal (tmux), against real servers: width, colours, progress, and the live list."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from tests.sandbox_fixtures import Clusters
from tests.tmux_fixtures import PROGRAM, WAIT_MS, tmux_terminal
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(400)]

RELEASE = "1.1.1"
PARTITIONS = 4


@pytest.fixture
def cluster(clusters: Clusters, names: tuple[str, str]) -> Sandbox:
    """With a topic, whose records no one has read."""
    made = clusters.get(RELEASE)
    made.create_topic(names[1], PARTITIONS)
    for partition in range(PARTITIONS):
        made.produce(names[1], partition, 100)
    return made


def member_of(cluster: Sandbox, group: str, topic: str) -> ZookeeperConsumerConnector:
    """A member of ours, which owns its share and reads nothing."""
    settings = {"zookeeper_connect": cluster.zookeeper_connect, "group_id": group, "auto_offset_reset": "smallest"}
    member = ZookeeperConsumerConnector(ConsumerConfig(**settings))
    member.create_message_streams({topic: 1})
    return member


def owners(cluster: Sandbox, group: str, topic: str) -> set[str]:
    """The owners of the partitions, without those of no one."""
    found = set()
    for partition in range(PARTITIONS):
        data = cluster.admin.get(f"/consumers/{group}/owners/{topic}/{partition}")
        found.add("" if data is None else data.decode())
    return found


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_fit_the_terminal_and_pipes_get_everything(
    cluster: Sandbox, names: tuple[str, str], columns: int
) -> None:
    group, topic = names
    for partition in range(PARTITIONS):
        cluster.admin.put(f"/consumers/{group}/offsets/{topic}/{partition}", b"40")
    address = f"--zookeeper {cluster.zookeeper_connect}"
    with closing(member_of(cluster, group, topic)), tmux_terminal(columns, 40, TERM="screen-256color") as terminal:
        wait_until(lambda: "" not in owners(cluster, group, topic), "the member owns the partitions", WAIT_MS)
        shown = terminal.run(f"groups describe {group} {address}")
        table = [line for line in shown.splitlines() if topic in line]
        assert len(table) == PARTITIONS, shown
        assert ("(columns left out:" in shown) == (columns == 80)
        assert terminal.exit_code == 0
        piped = terminal.run(f"groups describe {group} {address} | head -1 | tr -s ' ' '_'")
        heads = (
            "GROUP_TOPIC_PARTITION_CURRENT-OFFSET_LOG-END-OFFSET_LAG_CONSUMER-ID_HOST_CLIENT-ID_ZK-OFFSET_KAFKA-OFFSET"
        )
        assert heads in piped.replace("\n", "")
        terminal.run(f"groups describe no-such-group {address}")
        assert "\x1b[31mzkconsumer: " in terminal.text(with_colours=True)
    with tmux_terminal(columns, 40, TERM="screen-256color", NO_COLOR="1") as plain:
        plain.run(f"groups describe no-such-group {address}")
        assert "\x1b[31m" not in plain.text(with_colours=True)


def test_the_doctor_shows_that_it_works_while_it_watches(cluster: Sandbox, names: tuple[str, str]) -> None:
    group, topic = names
    cluster.admin.put(f"/consumers/{group}/offsets/{topic}/0", b"40")
    with tmux_terminal(100) as terminal:
        terminal.type(f"clear; {PROGRAM} groups doctor {group} --zookeeper {cluster.zookeeper_connect}; echo ENDED-$?")
        terminal.wait_for("watching the offsets: ")
        assert "watching the offsets" not in terminal.wait_for("\nENDED-")


def test_the_live_list_shows_lag_owners_and_a_server_that_fails_and_gives_the_terminal_back(
    cluster: Sandbox, names: tuple[str, str]
) -> None:
    group, topic = names
    for partition in range(PARTITIONS):
        cluster.admin.put(f"/consumers/{group}/offsets/{topic}/{partition}", b"40")
    words = f"groups top --interval 0.5 --zookeeper {cluster.zookeeper_connect}"
    with tmux_terminal(120) as terminal, closing(member_of(cluster, group, topic)):
        terminal.type("clear; stty -a | md5sum")
        before = terminal.wait_for("  -")
        terminal.type(f"clear; {PROGRAM} {words}; echo ENDED-$?; stty -a | md5sum")
        terminal.press("/")
        terminal.wait_for("q quit")
        terminal.type(group)

        def row() -> list[str]:
            found = [line.split() for line in terminal.text().splitlines() if line.startswith(f"{group} ")]
            return found[0] if found else []

        wait_until(lambda: "240" in row(), "the lag of the group", WAIT_MS)
        wait_until(lambda: row()[-2:] == ["0", "-"], "no owner has changed yet, and there is no migration", WAIT_MS)
        cluster.produce(topic, 0, 10)
        wait_until(lambda: "250" in row(), "the lag grows", WAIT_MS)
        with closing(member_of(cluster, group, topic)):
            wait_until(lambda: "ago" in row(), "the owners have changed", WAIT_MS)
            wait_until(lambda: row()[3] == "2", "both members", WAIT_MS)
        terminal.resize(60, 12)
        terminal.wait_for("columns left out:")
        terminal.resize(120, 24)
        cluster.zookeeper.pause()
        terminal.wait_for("cannot be read for")
        assert "250" in row(), "the last values stay"
        cluster.zookeeper.resume()
        wait_until(lambda: "cannot be read for" not in terminal.text(), "it is read again", WAIT_MS)
        checksum = before.split("  -")[0].split()[-1]
        terminal.press("C-z")
        assert checksum in terminal.wait_for("Stopped"), "while it is stopped, the shell has its terminal"
        terminal.type("clear; fg")
        terminal.wait_for("q quit")
        terminal.press("q")
        terminal.wait_for("READY>")
        terminal.type("clear; stty -a | md5sum")
        terminal.wait_for(checksum)


def test_a_signal_ends_the_live_list_with_the_terminal_as_before(cluster: Sandbox) -> None:
    with tmux_terminal(80) as terminal:
        terminal.type("clear; stty -a | md5sum")
        checksum = terminal.wait_for("  -").split("  -")[0].split()[-1]
        command = f"{PROGRAM} groups top --zookeeper {cluster.zookeeper_connect}"
        terminal.type(f"clear; {command} & echo PID-$!; fg; echo ENDED-$?; stty -a | md5sum")
        terminal.wait_for("q quit")
        terminal.press("C-c")
        terminal.wait_for("ENDED-130")
        pid = int(terminal.wait_for("PID-").split("PID-")[1].split()[0])
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        terminal.wait_for(checksum)
        piped = terminal.run(f"groups top --zookeeper {cluster.zookeeper_connect} | cat")
        assert "GROUP" in piped
        assert "q quit" not in piped
