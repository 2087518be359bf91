"""What changed between two reads of a group, as events; and a bounded history of them.  Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from zkconsumer.admin.text_format import count_text

if TYPE_CHECKING:
    from bridge.web.read_state import Document

EVENTS_MAX = 200
"""Events of one group that are kept."""

MOVES_SHOWN_MAX = 6
"""Different moves between two members in one event; a sum for the rest."""


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """``kind``: ``members``, ``owners``, ``state``, ``authority``, ``phase``, ``reading``.  ``at_ms``: of the read."""

    at_ms: int
    kind: str
    text: str


class EventHistory:
    """The newest ``EVENTS_MAX`` events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[GroupEvent] = deque(maxlen=EVENTS_MAX)

    def add(self, events: Iterable[GroupEvent]) -> bool:
        """Append them; whether there was any."""
        new = list(events)
        self._events.extend(new)
        return bool(new)

    def times_ms(self, kind: str) -> list[int]:
        """When the events of this kind were read, oldest first."""
        return [event.at_ms for event in self._events if event.kind == kind]

    def to_json(self) -> list[dict[str, object]]:
        return [asdict(event) for event in self._events]


def group_events(before: Document, after: Document, at_ms: int) -> Iterator[GroupEvent]:
    """Compare two ``group_page`` documents."""
    old, new = _members_by_id(before), _members_by_id(after)
    for name in sorted(new.keys() - old.keys()):
        yield GroupEvent(at_ms, "members", f"{_who(new[name])} joined")
    for name in sorted(old.keys() - new.keys()):
        yield GroupEvent(at_ms, "members", f"{_who(old[name])} left")
    moves = _owner_moves(before, after)
    if moves:
        yield GroupEvent(at_ms, "owners", _moves_text(moves))
    old_state, new_state = _coordinator_state(before), _coordinator_state(after)
    if old_state != new_state:
        yield GroupEvent(at_ms, "state", f"coordinator group: {old_state or 'none'} → {new_state or 'none'}")
    if before["authority"] != after["authority"]:
        yield GroupEvent(at_ms, "authority", f"the authority moved: {before['authority']} → {after['authority']}")


def migration_events(before: Document, after: Document, at_ms: int) -> Iterator[GroupEvent]:
    """Compare two ``migrate status`` documents."""
    if (before["phase"], before["epoch"]) != (after["phase"], after["epoch"]):
        old = before["phase"] or "no migration"
        yield GroupEvent(
            at_ms, "phase", f"migration: {old} → {after['phase'] or 'no migration'}, epoch {after['epoch']}"
        )
    old_run, new_run = before["lock"], after["lock"]
    if (old_run is None) != (new_run is None):
        text = f"a run began: {new_run['owner']}" if new_run is not None else f"the run of {old_run['owner']} ended"
        yield GroupEvent(at_ms, "phase", text)


def changed_rows(before: Document, after: Document) -> tuple[list[Mapping[str, Any]], list[list[object]]]:
    """The rows that are new or different, and the keys (topic, partition, member without partition) of those gone."""
    old = {_row_key(row): row for row in before["rows"]}
    new = {_row_key(row): row for row in after["rows"]}
    return [row for key, row in new.items() if old.get(key) != row], [list(key) for key in old if key not in new]


def _row_key(row: Mapping[str, Any]) -> tuple[object, object, object, object]:
    is_partition = row["partition"] is not None
    store = "coordinator" if row["owner_kind"] == "coordinator" else ""
    return row["topic"], row["partition"], None if is_partition else row["consumer_id"], store


def _members_by_id(page: Document) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(one["store"], one["id"]): one for one in page["all_members"]}


def _who(member: Mapping[str, Any]) -> str:
    kind = {
        "scala": "a Scala member",
        "zkconsumer": "a zkconsumer member",
        "spark": "a Spark query",
        "coordinator": "a member of the coordinator group",
    }.get(member["kind"], "a member")
    return f"{member['id']} ({kind})"


def _owner_moves(before: Document, after: Document) -> Counter[tuple[str, str]]:
    old, new = _owners(before), _owners(after)
    return Counter(
        (old.get(key) or "no owner", new.get(key) or "no owner")
        for key in sorted(old.keys() | new.keys(), key=str)
        if old.get(key) != new.get(key) and key in old and key in new
    )


def _owners(page: Document) -> dict[tuple[object, object], str | None]:
    return {
        (row["topic"], row["partition"]): "a fence" if row["owner_kind"] == "fence" else row["consumer_id"]
        for row in page["rows"]
        if row["partition"] is not None and "consumer_id" not in row["unknown"]
    }


def _moves_text(moves: Counter[tuple[str, str]]) -> str:
    shown = moves.most_common(MOVES_SHOWN_MAX)
    rest = moves.total() - sum(number for _, number in shown)
    texts = [f"{count_text(number, 'partition')}: {old} → {new}" for (old, new), number in shown]
    return "; ".join([*texts, *([f"{count_text(rest, 'partition')} moved between others"] if rest else [])])


def _coordinator_state(page: Document) -> str | None:
    group = page["coordinator_group"]
    return None if group is None else group["state"]
