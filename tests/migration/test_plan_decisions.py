"""What a plan must not guess: it shows it, ``apply`` refuses it and changes nothing, and commits the decided offset.

Each row is a group whose offsets are unusual in one way, as an operator sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.migration.migration_write_faults import Lab, lab
from tests.migration.operator_shell import Shell, shell, told
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

__all__ = ["lab", "shell"]

RECORDS = 50
"""In every log of the topic; partition 2 has no offset unless a row gives one, and is decided by ``--missing``."""


@dataclass(frozen=True)
class Odd:
    """``stored``: ZooKeeper's offsets, by partition; ``kafka``: what an application committed.

    ``line``: the text after the offsets in the plan's table, of partition 0; ``said``: on standard error.
    ``decides``: the options that decide it; ``then``: the line with them; ``committed``: by partition.
    """

    stored: dict[int, bytes]
    kafka: dict[int, int] = field(default_factory=dict)
    line: str = ""
    said: tuple[str, ...] = ()
    decides: tuple[str, ...] = ()
    then: str = ""
    committed: tuple[int, int, int] = (0, 0, 0)
    target: str = "-"


ROWS = {
    "no offset": Odd(
        {1: b"20", 2: b"50"},
        line="REFUSED: no offset is stored (--missing)",
        said=("  {group}: no offset is stored (--missing)",),
        decides=("--missing", "earliest"),
        then="missing: earliest",
        committed=(0, 20, 50),
    ),
    "an offset beyond the end of the log": Odd(
        {0: b"51", 1: b"20", 2: b"50"},
        line="REFUSED: 51 is beyond the end of the log (50) (--out-of-range)",
        said=("51 is beyond the end of the log (50) (--out-of-range)",),
        decides=("--out-of-range", "latest"),
        then="out of range: latest",
        committed=(50, 20, 50),
    ),
    "a znode that holds no number": Odd(
        {0: b"ten", 1: b"20", 2: b"50"},
        line="REFUSED: its znode holds no offset",
        said=("its znode holds no offset",),
        decides=("--missing", "latest"),
        then="missing: latest",
        committed=(50, 20, 50),
    ),
    "numbers of the last record": Odd(
        {0: b"49", 1: b"49", 2: b"49"},
        line="last + 1",
        said=("Warning: each stored offset is taken as the last",),
        committed=(50, 50, 50),
        target="50",
    ),
    "numbers that nobody can tell": Odd(
        {0: b"10", 1: b"20", 2: b"0"},
        line="depends on --offset-convention",
        said=(
            "Offset convention: not known (nothing shows it for certain)",
            "Refused: the meaning of the stored offsets is not known",
        ),
        decides=("--offset-convention", "last"),
        then="last + 1",
        committed=(11, 21, 1),
    ),
    "a value of Kafka that is ahead": Odd(
        {0: b"10", 1: b"20", 2: b"50"},
        {0: 30},
        line="REFUSED: ZooKeeper has 10 as the next one, and an application stored 30 in Kafka (--existing)",
        said=("ZooKeeper has 10 as the next one, and an application stored 30 in Kafka (--existing)",),
        decides=("--existing", "keep-target"),
        then="kept: Kafka's (ZooKeeper's next is 10: 20 records passed over)",
        committed=(30, 20, 50),
    ),
    "the same, and it is a rewind to go on from ZooKeeper": Odd(
        {0: b"10", 1: b"20", 2: b"50"},
        {0: 30},
        line="REFUSED: ZooKeeper has 10 as the next one, and an application stored 30 in Kafka (--existing)",
        decides=("--existing", "keep-source"),
        then="copied (Kafka's next is 30: 20 records read again)",
        committed=(10, 20, 50),
    ),
    "a value of Kafka, and none of ZooKeeper": Odd(
        {1: b"20", 2: b"50"},
        {0: 30},
        line="REFUSED: ZooKeeper has none, and an application stored 30 in Kafka (--existing)",
        said=("ZooKeeper has none, and an application stored 30 in Kafka (--existing)",),
        decides=("--existing", "higher"),
        then="kept: Kafka's",
        committed=(30, 20, 50),
    ),
    "a rewind by hand": Odd(
        {0: b"60", 1: b"20", 2: b"50"},
        line="REFUSED: 60 is beyond the end of the log (50) (--out-of-range)",
        decides=("--offset", "t:0=7"),
        then="decided (ZooKeeper's next is 60: 53 records read again)",
        committed=(7, 20, 50),
    ),
}


def group_of(lab: Lab, row: Odd) -> str:
    group = lab.new_group()
    for number in range(3):
        path = paths.offset(group, TopicPartition("t", number))
        if number in row.stored:
            lab.zookeeper.ensure(path, row.stored[number])
        else:
            lab.zookeeper.remove(path)
    for number, offset in row.kafka.items():
        assert lab.commit_first(group, number, offset) == 0
    return group


def first_line(text: str) -> list[str]:
    """The words of the row of partition 0; the remark is the text from the target on."""
    head, row, *_ = text.splitlines()
    assert head.split()[-2:] == ["TARGET-OFFSET", "REMARK"]
    return [row[head.index("TARGET-OFFSET") :].split()[0], row[head.index("REMARK") :].strip()]


@pytest.mark.parametrize("name", ROWS)
def test_it_is_shown_and_refused_and_done_as_decided(
    lab: Lab, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    row = ROWS[name]
    # The offsets were stored after the records that are in the logs.
    monkeypatch.setattr(lab.zookeeper, "_clock", ManualClock(wall_ms=4_000_000_000_000))
    group, file = group_of(lab, row), tmp_path / "plan"
    before = lab.zookeeper.tree.dump(), lab.kafka(group)

    shown = shell("plan", group, "-f", file)
    target, remark = first_line(shown.stdout)
    assert (target, remark[: len(row.line)]) == (row.target, row.line)
    for words in row.said:
        assert words.format(group="t/0") in shown.stderr
    if row.decides:
        assert shown.exit_code == 4
        assert shown.stderr.endswith("the plan cannot be applied. Nothing was changed.\n")
        refused = shell("apply", file, "--execute")
        assert refused.exit_code == 4
        assert refused.stderr.startswith("zkconsumer: this plan cannot be applied:")
        assert "zkconsumer migrate plan" in refused.stderr
        assert (lab.zookeeper.tree.dump(), lab.kafka(group)) == before
        assert shell("plan", group, "-f", file, *row.decides).exit_code == 0
        assert first_line(shell("plan", group, "-f", file, *row.decides).stdout) == [str(row.committed[0]), row.then]
    else:
        assert shown.exit_code == 0
    assert (lab.zookeeper.tree.dump(), lab.kafka(group)) == before, "whoever plans changes nothing"

    done = shell("apply", file, "--execute")
    assert done.exit_code == 0, done.stderr
    assert tuple(offset for _, (offset, _) in sorted(lab.kafka(group).items())) == row.committed
    assert lab.stands(group) == ("switched", "kafka")


def nodes_of_the_group(lab: Lab) -> dict[str, bytes]:
    """All but the broker's: it registers ``__consumer_offsets`` some time after a client asked for the group."""
    return {path: data for path, data in lab.zookeeper.tree.dump().items() if not path.startswith("/brokers")}


def test_an_offset_that_moved_back_after_the_plan_is_named(lab: Lab, shell: Shell) -> None:
    """A Scala member that wakes from a long pause writes what it had."""
    group, file = shell.planned()
    lab.zookeeper.ensure(paths.offset(group, TopicPartition("t", 1)), b"5")
    before = nodes_of_the_group(lab)
    done = shell("apply", file, "--execute")
    assert done.exit_code == 4
    assert "t/1: ZooKeeper had 20 (version 0) and has 5 (version 1): it went back, as when a process" in done.stderr
    assert nodes_of_the_group(lab) == before
    taken = shell("apply", file, "--execute", "--accept-drift")
    assert taken.exit_code == 0
    assert lab.kafka(group)[TopicPartition("t", 1)][0] == 5


def test_the_dry_run_of_a_plan_shows_what_would_be_committed(lab: Lab, shell: Shell) -> None:
    group, file = shell.planned()
    dry = shell("apply", file, "-o", "json")
    assert dry.exit_code == 3
    lines = next(one["lines"] for one in told(dry)["steps"] if one["name"] == "commit the offsets to Kafka")
    assert lines[1:] == ["  t/0  10", "  t/1  20", "  t/2  0"]
    assert lab.control(group) is None
