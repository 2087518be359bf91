"""Whether a pipeline has kept its promises after a crash.  Pure.

each offset of the log is in one batch or one backfill        records of its ranges = rows + dead letters + filtered
                                                              + skipped, in its counts and in the sink
no row and no dead letter is lost, none is there twice        in a topic: what a dead attempt had sent comes twice,
                                                              and nothing else
the group and the checkpoint are at the end of the log        no reservation is left
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, fields

from bridge.spark.pipeline.lineage import BatchLineage
from tests.spark.crash.pipeline_cases import BATCHES, COMMITTED, REPLACE, SENT, TOPIC, PipelineCrash
from tests.spark.crash.pipeline_input import (
    OFFSETS,
    PARTITIONS,
    expected_counts,
    expected_kinds,
    expected_letters,
    expected_rows,
    places_of,
)

SHOWN_MAX = 6


@dataclass(frozen=True, slots=True)
class FoundRow:
    """``batch``: query and batch of the headers of a record of a topic; None: a table has no such mark."""

    partition: int
    offset: int
    n: int
    batch: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A dead letter, or one of several equal records of a topic."""

    partition: int
    offset: int
    query: str
    batch: int
    stage: str


@dataclass(frozen=True, slots=True)
class PipelineState:
    """All that a crash may not change for the worse.

    ``group_offsets``: partition -> next offset, of ZooKeeper.  ``checkpoint``: the files of Spark's logs of offsets and
    of commits, name -> text.  ``planned``: partition -> the end of the last batch in the checkpoint.
    """

    rows: list[FoundRow]
    letters: list[FoundLetter]
    lineages: list[BatchLineage]
    letter_lineages: list[BatchLineage]
    reservations: list[BatchLineage]
    group_offsets: dict[int, int]
    planned: dict[int, int]
    checkpoint: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineVerdict:
    """``lost``, ``twice``: rows and dead letters; ``twice`` also counts what a topic may have twice."""

    findings: tuple[str, ...]
    lost: int
    twice: int

    @property
    def is_valid(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        state = "right" if self.is_valid else "WRONG"
        return f"{state}: lost {self.lost}, twice {self.twice}" + "".join(f"\n    {each}" for each in self.findings)


def judge(crash: PipelineCrash, state: PipelineState) -> PipelineVerdict:
    """The state when the command was repeated and has ended."""
    rows, letters = _row_counter(state), Counter((each.partition, each.offset) for each in state.letters)
    wanted_rows = expected_rows(crash.command)
    wanted_letters = expected_letters(crash.command, _replacements(state.lineages))
    repeated_letters = Counter(state.letters)
    findings = [
        *_missing("rows", wanted_rows, rows),
        *_missing("dead letters", wanted_letters, letters),
        *_foreign("rows", wanted_rows, rows),
        *_foreign("dead letters", wanted_letters, letters),
        *_lineage_findings(crash, state.lineages),
        *_position_findings(state),
    ]
    if crash.sink == TOPIC:
        findings += _repeated_records(crash, state.rows)
        sent_again = {(each.query, each.batch) for each, count in repeated_letters.items() if count > 1}
        if sent_again and (crash.delay_ms is None or len(sent_again) > 1):
            findings.append(f"dead letters that no dead attempt has sent are there twice: {_shown(sent_again)}")
    else:
        findings += _repeated("rows", wanted_rows, rows)
        findings += _repeated("dead letters", wanted_letters, letters)
    lost = (wanted_rows - rows).total() + (wanted_letters - letters).total()
    twice = (rows - wanted_rows).total() + (letters - wanted_letters).total()
    return PipelineVerdict(tuple(findings), lost, twice)


def changes(crash: PipelineCrash, before: PipelineState, after: PipelineState) -> Iterator[str]:
    """What a driver has changed that was stopped and continued when its successor had ended.

    If it was stopped some time after a point, it may have been in the middle of sending to a topic.  Then it sends the
    rest, and ``judge`` decides which records may be there twice.
    """
    may_send = crash.sink == TOPIC and crash.delay_ms is not None
    for each in fields(PipelineState):
        old, new = getattr(before, each.name), getattr(after, each.name)
        if old != new and not (may_send and each.name in ("rows", "letters") and set(old) == set(new)):
            yield f"the driver that continued has changed {each.name}: {_difference(old, new)}"


def _row_counter(state: PipelineState) -> Counter[tuple[int, int, int]]:
    return Counter((each.partition, each.offset, each.n) for each in state.rows)


def _missing(what: str, wanted: Counter[Hashable], found: Counter[Hashable]) -> Iterator[str]:
    if lost := wanted - found:
        yield f"{lost.total()} {what} are lost: {_shown(lost)}"


def _foreign(what: str, wanted: Counter[Hashable], found: Counter[Hashable]) -> Iterator[str]:
    if foreign := found.keys() - wanted.keys():
        yield f"{len(foreign)} {what} are not of the input: {_shown(foreign)}"


def _repeated(what: str, wanted: Counter[Hashable], found: Counter[Hashable]) -> Iterator[str]:
    if more := {each for each in wanted if found[each] > wanted[each]}:
        yield f"{len(more)} {what} are there twice: {_shown(more)}"


def _repeated_records(crash: PipelineCrash, rows: list[FoundRow]) -> Iterator[str]:
    """Records of a topic that are there more than once must be one batch: that of the dead attempt."""
    copies = Counter(rows)
    by_batch: dict[tuple[str, int] | None, set[int]] = defaultdict(set)
    for row, count in copies.items():
        by_batch[row.batch].add(count)
    repeated = {batch for batch, counts in by_batch.items() if counts != {1}}
    where: dict[tuple[int, int], set[object]] = defaultdict(set)
    for row in rows:
        where[row.partition, row.offset].add(row.batch)
    if several := {place for place, batches in where.items() if len(batches) > 1}:
        yield f"records are there as parts of several batches: {_shown(several)}"
    if crash.delay_ms is not None:  # it may have died in the middle of the sending, or in the next batch
        if len(repeated) > 1 or any(max(by_batch[batch]) > 2 for batch in repeated):
            yield f"records of several batches, or more than one attempt, are there twice: {_shown(repeated)}"
        return
    if crash.point != SENT:
        if repeated:
            yield f"records that no dead attempt has sent are there twice: {_shown(repeated)}"
        return
    if {batch[1] for batch in repeated if batch is not None} != {crash.batch} or len(repeated) != 1:
        yield f"the dead attempt has sent batch {crash.batch}, and there twice is {_shown(repeated)}"
    elif by_batch[next(iter(repeated))] != {2}:
        yield "the dead attempt has sent all records of its batch, and some are not there twice"


def _replacements(lineages: list[BatchLineage]) -> int:
    return len({each.query for each in lineages if each.kind == REPLACE})


def _allowed_replacements(crash: PipelineCrash) -> set[int]:
    """The same command after a complete replacement makes a second one."""
    if crash.command != REPLACE:
        return {0}
    is_last = (crash.point, crash.batch) == (COMMITTED, BATCHES[-1])
    return {1, 2} if crash.delay_ms is not None else {2 if is_last else 1}


def _lineage_findings(crash: PipelineCrash, lineages: list[BatchLineage]) -> Iterator[str]:
    replacements, allowed = _replacements(lineages), _allowed_replacements(crash)
    if replacements not in allowed:
        yield f"there are {replacements} replacements, and not {sorted(allowed)}"
    kinds = expected_kinds(crash.command, replacements)
    found: dict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for each in lineages:
        found[each.kind].update(places_of(each.ranges))
        counts = expected_counts(each.ranges, crash.command, each.kind)
        if each.counts != counts:
            yield f"{each.name} has {each.counts}, and its ranges have {counts}"
    for kind, wanted in kinds.items():
        yield from _missing(f"offsets of kind {kind}", wanted, found[kind])
        yield from _repeated(f"offsets of kind {kind}", wanted, found[kind])
    for kind, places in found.items():
        yield from _foreign(f"offsets of kind {kind}", kinds.get(kind, Counter()), places)


def _position_findings(state: PipelineState) -> Iterator[str]:
    end = dict.fromkeys(PARTITIONS, OFFSETS)
    if state.group_offsets != end:
        yield f"the group is at {state.group_offsets}, and the log ends at {end}"
    if state.planned != end:
        yield f"the checkpoint is at {state.planned}, and the log ends at {end}"
    if state.reservations:
        yield f"reservations are left: {_shown([each.name for each in state.reservations])}"


def _shown(found: object) -> str:
    items = sorted(map(str, found))  # type: ignore[call-overload]
    return ", ".join(items[:SHOWN_MAX]) + (f" and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else "")


def _difference(old: object, new: object) -> str:
    if isinstance(old, list) and isinstance(new, list):
        return f"gone {_shown([x for x in old if x not in new])}; new {_shown([x for x in new if x not in old])}"
    if isinstance(old, dict) and isinstance(new, dict):
        return _shown({f"{key}: {old.get(key)} -> {new.get(key)}" for key in old | new if old.get(key) != new.get(key)})
    return f"{old} -> {new}"
