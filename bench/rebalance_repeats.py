"""Counts the records that are delivered twice when members of both kinds join and leave cleanly, on real servers.

The group has two members of this project and two Scala members.  Repeatedly one leaves and one of its kind joins, while
records are produced and read.  The checker of ``zkconsumer.testing`` attributes each repeated record to a transfer:
from which kind of member to which kind the partition moved.
"""

from __future__ import annotations

import itertools
import random
import statistics
import string
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab.group_lab import GroupLab
from zkconsumer.testing.checker import Verdict
from zkconsumer.testing.sandbox import Sandbox

REPEATS_TITLE = "## Records that are read twice"
PAIRS = ("ours_to_scala", "scala_to_ours", "scala_to_scala", "ours_to_ours")
PER_SECOND = 400
OF_EACH_KIND = 2
PARTITIONS = 8
HISTORIES = "rebalance-repeats"

ORIGINAL_DEFAULTS = {
    "rebalance.backoff.ms": "2000",
    "rebalance.max.retries": "4",
    "zookeeper.session.timeout.ms": "6000",
}
"""The defaults of the Scala consumer, instead of the shorter times of the sandbox."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings that differ between runs; times in ms."""

    commit_interval_ms: int
    settle_ms: int


SETTINGS = (Setting(500, 0), Setting(60_000, 0), Setting(500, 500), Setting(60_000, 500))


@dataclass
class Repeated:
    """One run: repeated records and transfers for each pair of kinds, and the time without owners at each change."""

    setting: Setting
    changes: int = 0
    records: int = 0
    repeats: Mapping[str, int] = field(default_factory=dict)
    ownership_transfers: Mapping[str, int] = field(default_factory=dict)
    cover_ms: list[int] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def row(self) -> str:
        """One line of the table."""
        pairs = [f"{self.repeats.get(pair, 0)} in {self.ownership_transfers.get(pair, 0)}" for pair in PAIRS]
        others = sum(count for reason, count in self.repeats.items() if reason not in PAIRS)
        cover = f"{statistics.median(self.cover_ms):.0f} (to {max(self.cover_ms)})" if self.cover_ms else "-"
        cells = [self.setting.commit_interval_ms, self.setting.settle_ms, self.changes, *pairs, others, cover]
        return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| `auto.commit.interval.ms` | `release.settle.ms` | changes | ours → Scala | Scala → ours | Scala → Scala "
    "| ours → ours | other reasons | cover ms |\n|---|---|---|---|---|---|---|---|---|"
)


class Comings:
    """Starts and ends members with names in random order, so that each change moves other partitions."""

    def __init__(self, lab: GroupLab, release: str, chance: random.Random) -> None:
        self._lab = lab
        self._release = release
        self._chance = chance
        self._numbers = itertools.count(1)
        self.present: dict[str, list[str]] = {"ours": [], "scala": []}

    def join(self, kind: str) -> None:
        """Start a new member of this kind."""
        name = f"{self._chance.choice(string.ascii_lowercase)}-{kind}-{next(self._numbers)}"
        with self._lab.change(f"{name} joins"):
            if kind == "ours":
                self._lab.start_ours(name)
            else:
                self._lab.start_scala(name, self._release)
        self.present[kind].append(name)

    def leave(self, kind: str) -> None:
        """Shut down one member of this kind cleanly."""
        name = self.present[kind].pop(self._chance.randrange(len(self.present[kind])))
        with self._lab.change(f"{name} leaves"):
            self._lab.leave(name)


def measure_repeats(
    sandbox: Sandbox, release: str, setting: Setting, *, changes: int, seed: int, number: int
) -> Repeated:
    """One run of ``changes`` clean joins and leaves, with its check; ``number`` is in its group and topic names."""
    settings = ORIGINAL_DEFAULTS | {"auto.commit.interval.ms": str(setting.commit_interval_ms)}
    group = topic = f"repeats-{number}"
    folder = sandbox.run.root / HISTORIES / group
    repeated = Repeated(setting)
    with GroupLab(
        sandbox,
        group,
        {topic: PARTITIONS},
        folder=folder,
        ours=settings | {"release.settle.ms": str(setting.settle_ms)},
        scala=settings,
        policy=dict.fromkeys(PAIRS),
    ) as lab:
        comings = Comings(lab, release, random.Random(seed))
        lab.load(topic, PER_SECOND)
        for kind in ("ours", "scala") * OF_EACH_KIND:
            comings.join(kind)
        settled = len(lab.changes)
        for kind, _ in zip(itertools.cycle(("ours", "scala")), range(0, changes, 2), strict=False):
            comings.leave(kind)
            comings.join(kind)
        repeated.changes = len(lab.changes) - settled
        repeated.cover_ms = [change.from_ids_ms for change in lab.changes[settled:] if change.from_ids_ms >= 0]
        _judge(lab, repeated, folder)
    return repeated


def _judge(lab: GroupLab, repeated: Repeated, folder: Path) -> None:
    """Check the run; a failed check does not end the benchmark, the table shows it."""
    try:
        lab.finish()
    except AssertionError as error:
        repeated.findings.append(f"{error} ({folder})")
    verdict: Verdict | None = lab.verdict
    if verdict is not None:
        repeated.records = verdict.counts.records
        repeated.repeats = verdict.counts.duplicates
        repeated.ownership_transfers = verdict.counts.ownership_transfers


def repeats_section(release: str, changes: int, seed: int, machine: Callable[[], str]) -> str:
    """Run every setting on a separate cluster; return the section of the page.  ``changes``: in all runs together."""
    runs: list[Repeated] = []
    with Sandbox() as sandbox:
        sandbox.start_zookeeper("3.8")
        sandbox.start_broker(release, chroot="/kafka")
        for number, setting in enumerate(SETTINGS):
            share = changes // len(SETTINGS)
            runs.append(measure_repeats(sandbox, release, setting, changes=share, seed=seed, number=number))
            print(runs[-1].row(), file=sys.stderr, flush=True)
    head = [
        REPEATS_TITLE,
        "",
        f"Printed by `python bench/rebalance.py --repeats --changes {changes} --write`.",
        "",
        f"{OF_EACH_KIND} members of ours and {OF_EACH_KIND} Scala members ({release}), each in a separate process.",
        "Repeatedly one leaves and one of its kind joins.",
        f"{PARTITIONS} partitions, range, {PER_SECOND} records/s, ZooKeeper 3.8, broker {release}, {machine()}.",
        "",
        "*n in m*: n records were read twice, in m partitions that moved from one kind to the other. *Cover*: from the",
        "change of the registrations to the right owners, median (and maximum). A Scala member that finds a partition",
        "owned pauses for 2 s. *Other reasons*: a Scala member delivered records that it fetched before its release.",
        "",
        HEAD,
    ]
    findings = [f"- {finding}" for run in runs for finding in run.findings]
    return "\n".join([*head, *(run.row() for run in runs), *([""] if findings else []), *findings]) + "\n"
