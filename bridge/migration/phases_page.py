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

The phase stands in the control znode, `/zkconsumer/groups/G`. Each change of it is one conditional write, and the last
one of whatever belongs to the phase before: so whoever reads it knows what is done for certain, and a run that was cut
off goes on from there. `zkconsumer migrate status G` shows it. What is done in each phase:
[how a plan is carried out](migrate.md#how-a-plan-is-carried-out).

The authority, the store whose offsets count, moves with two writes only:
{moves}. With `copy` such a write is not *confirmed* (`"confirmed":false` in
the control znode) until the coordinator has answered a heartbeat of the placeholder member after it, or both stores
were compared again: no fence is lifted before, and no other phase follows. The epoch grows with every write that
moves the authority, or begins or undoes a fence: a value, a claim or a member that names an older one is not believed.

| phase | what it says | authority | an old member that starts now | epoch |
|---|---|---|---|---|
{phases}

A dash: not for certain. With `dual` every partition has an owner up to the switch, so an old member that starts claims
none, and the next phase is not begun while it is there.

An ended migration leaves the control znode where it is. With {ended} there nothing is under way.

{diagrams}"""

_CHAPTER = """\
## {strategy}

{what}

```mermaid
stateDiagram-v2
    [*] --> {first}: apply
{arrows}
```

| in phase | the way on | the way back |
|---|---|---|
{rows}
"""

_STRATEGIES: Mapping[Strategy, str] = {
    "copy": "The old members stop, the new ones start. Always possible.",
    "dual": "All members run this library, and none stops.",
}
_STORES: Mapping[Authority, str] = {"kafka": "Kafka", "zookeeper": "ZooKeeper"}


def render() -> str:
    """The whole page."""
    return _PAGE.format(
        moves=" and ".join(f"into `{phase.value}` (to {_STORES[authority_of(phase)]})" for phase in _moves()),
        phases="\n".join(
            f"| `{phase.value}` | {words} | {_STORES[authority_of(phase)]} "
            f"| {'is held off' if blocks_old_members(phase) else '-'} "
            f"| {'one more' if phase is Phase.PLANNED or phase in PHASES_WITH_NEW_EPOCH else '-'} |"
            for phase, words in sentences().items()
        ),
        ended=" or ".join(f"`{phase.value}`" for phase in Phase if phase in ENDED),
        diagrams="\n".join(_chapter(strategy) for strategy in FORWARD),
    )


def sentences() -> dict[Phase, str]:
    """What the source says below each phase, in its order."""
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
    """Every change of phase that can come, each once, from the first phase on."""
    todo, seen = [FORWARD[strategy][0]], set[Phase]()
    while todo:
        phase = todo.pop(0)
        if phase not in seen:
            seen.add(phase)
            todo += next_phases(strategy, phase)
            yield from ((phase, after) for after in next_phases(strategy, phase))


def command(strategy: Strategy, after: Phase) -> str:
    """Which command leads into a phase."""
    if after is Phase.COMPLETED:
        return "complete"
    return "apply" if after in FORWARD[strategy] else "rollback"


def _moves() -> list[Phase]:
    pairs = [pair for strategy in FORWARD for pair in arrows(strategy)]
    found = (after for before, after in pairs if authority_of(before) != authority_of(after))
    return list(dict.fromkeys(found))


def _chapter(strategy: Strategy) -> str:
    found = list(arrows(strategy))
    lines = [f"    {before.value} --> {after.value}: {_label(strategy, before, after)}" for before, after in found]
    lines += [f"    {phase.value} --> [*]" for phase in dict.fromkeys(after for _, after in found) if phase in ENDED]
    rows = []
    for phase in dict.fromkeys(before for before, _ in found):
        ways: dict[bool, list[str]] = {True: [], False: []}
        for after in (after for before, after in found if before is phase):
            word = command(strategy, after)
            ways[word != "rollback"].append(f"`{word}`, into `{after.value}`")
        rows.append(f"| `{phase.value}` | {', '.join(ways[True]) or '-'} | {', '.join(ways[False]) or '-'} |")
    return _CHAPTER.format(
        strategy=strategy, what=_STRATEGIES[strategy], first=FORWARD[strategy][0].value,
        arrows="\n".join(lines), rows="\n".join(rows),
    )  # fmt: skip


def _label(strategy: Strategy, before: Phase, after: Phase) -> str:
    moved = authority_of(before) != authority_of(after)
    return command(strategy, after) + (f", authority to {_STORES[authority_of(after)]}" if moved else "")
