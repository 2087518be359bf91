"""The page ``migration_docs/reference/migration-phases.md``, drawn from the tables of ``phases.py``.  Pure."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bridge.migration.control import phases
from bridge.migration.control.control_layout import PHASES_WITH_NEW_EPOCH
from bridge.migration.control.phases import (
    ENDED,
    FORWARD,
    Phase,
    Strategy,
    authority_of,
    blocks_old_members,
    next_phases,
)

if TYPE_CHECKING:
    from zkconsumer.zk.znode_formats import Authority

_PAGE = """\
# Phases of a migration

<!-- Generated: python tests/generate_docs.py --write -->

The control znode `/zkconsumer/groups/G` contains the phase. Each change of the phase is one conditional write, and the
last write of the phase before. So the phase shows what is certainly done, and a run continues from it after an
interruption. `zkconsumer migrate status G` shows the phase. What is done in each phase:
[how a plan is executed](migrate.md#how-a-plan-is-executed).

Only two writes move the authority (the store whose offsets are valid):
{moves}. With `copy` such a write is not *confirmed* (`"confirmed":false` in
the control znode) until the coordinator answers a heartbeat of the placeholder member after it, or both stores
were compared again. Before that, no fence is lifted and no other phase follows. Every write that moves the authority,
or begins or undoes a fence, increments the epoch. An offset, an owner node or a member with an older epoch is ignored.

| phase | meaning | authority | an old member that starts now | epoch |
|---|---|---|---|---|
{phases}

A dash: not certain. With `dual` every partition has an owner until the switch, so an old member that starts acquires
none, and the next phase does not begin while it is registered.

The control znode remains after the end of a migration. In {ended} no migration is active.

{diagrams}"""

_CHAPTER = """\
## {strategy}

{what}

![The phases and the commands between them; the table below has the same](../pictures/phases-{strategy}.svg)

| in phase | forward | back |
|---|---|---|
{rows}
"""

_STRATEGIES: Mapping[Strategy, str] = {
    "copy": "The old members stop, the new ones start. Always possible.",
    "dual": "All members run this library, and no member stops.",
}
_STORES: Mapping[Authority, str] = {"kafka": "Kafka", "zookeeper": "ZooKeeper"}


def render() -> str:
    """The whole page."""
    return _PAGE.format(
        moves=" and ".join(f"into `{phase.value}` (to {_STORES[authority_of(phase)]})" for phase in _moves()),
        phases="\n".join(
            f"| `{phase.value}` | {words} | {_STORES[authority_of(phase)]} "
            f"| {'is blocked' if blocks_old_members(phase) else '-'} "
            f"| {'one more' if phase is Phase.PLANNED or phase in PHASES_WITH_NEW_EPOCH else '-'} |"
            for phase, words in sentences().items()
        ),
        ended=" or ".join(f"`{phase.value}`" for phase in Phase if phase in ENDED),
        diagrams="\n".join(_chapter(strategy) for strategy in FORWARD),
    )


def sentences() -> dict[Phase, str]:
    """The docstring of each phase in ``phases.py``, in its order."""
    [body] = [node.body for node in ast.parse(inspect.getsource(phases)).body if isinstance(node, ast.ClassDef)]
    found: dict[Phase, str] = {}
    phase: Phase | None = None
    for node in body:
        match node:
            case ast.Assign(value=ast.Constant(value=str(word))):
                phase = Phase(word)
            case ast.Expr(value=ast.Constant(value=str(text))) if phase is not None:
                found[phase] = " ".join(text.split()).replace("``SWITCHED``", "`switched`")
    assert found.keys() == set(Phase), "a phase without a sentence"
    return found


def arrows(strategy: Strategy) -> Iterator[tuple[Phase, Phase]]:
    """Every possible change of phase, each once, from the first phase on."""
    todo, seen = [FORWARD[strategy][0]], set[Phase]()
    while todo:
        phase = todo.pop(0)
        if phase not in seen:
            seen.add(phase)
            todo += next_phases(strategy, phase)
            yield from ((phase, after) for after in next_phases(strategy, phase))


def command(strategy: Strategy, after: Phase) -> str:
    """The command that leads to a phase."""
    if after is Phase.COMPLETED:
        return "complete"
    return "apply" if after in FORWARD[strategy] else "rollback"


def _moves() -> list[Phase]:
    pairs = [pair for strategy in FORWARD for pair in arrows(strategy)]
    found = (after for before, after in pairs if authority_of(before) != authority_of(after))
    return list(dict.fromkeys(found))


def _chapter(strategy: Strategy) -> str:
    found = list(arrows(strategy))
    rows = []
    for phase in dict.fromkeys(before for before, _ in found):
        ways: dict[bool, list[str]] = {True: [], False: []}
        for after in (after for before, after in found if before is phase):
            word = command(strategy, after)
            ways[word != "rollback"].append(f"`{word}`, into `{after.value}`")
        rows.append(f"| `{phase.value}` | {', '.join(ways[True]) or '-'} | {', '.join(ways[False]) or '-'} |")
    return _CHAPTER.format(strategy=strategy, what=_STRATEGIES[strategy], rows="\n".join(rows))


def label(strategy: Strategy, before: Phase, after: Phase) -> str:
    """The command that leads from a phase to the next, and the store to which the authority moves."""
    moved = authority_of(before) != authority_of(after)
    return command(strategy, after) + (f", authority to {_STORES[authority_of(after)]}" if moved else "")
