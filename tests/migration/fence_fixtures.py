"""A group of two topics whose migration is in a phase, and the steps that set and remove its fences."""

from __future__ import annotations

from collections.abc import Callable

from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CreateControlZnode
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.fences.fence_acl_steps import RestoreAcls, SetFenceAcls
from bridge.migration.fences.fence_acls import AccessList
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.owner_fences import CreateLateOwnerFences, owner_fence_steps
from bridge.migration.steps.step import MigrationStep
from tests.migration.step_write_faults import GROUP, MIGRATION, WHO, Group, carry_out
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import OPEN_ACL

TOPICS = ("clicks", "views")
PLANNED = (*(TopicPartition("clicks", number) for number in range(3)), TopicPartition("views", 0))
FENCING = (Phase.FENCING,)
UNDOING = (Phase.FENCING, Phase.UNDOING)


def stood() -> Group:
    """Two topics; clicks has two offsets and views has none, so there is no node of it below the group."""
    group = Group()
    group.topic("clicks", 3)
    group.topic("views", 1)
    group.zookeeper.ensure(paths.ids(GROUP))
    group.zookeeper.ensure(paths.owners_of_topic(GROUP, "clicks"))
    for number in (0, 1):
        group.offset("clicks", number)
    return group


def lists_of(group: Group) -> dict[str, AccessList]:
    """What a plan keeps: the lists of the group's nodes."""
    below = f"{paths.group_root(GROUP)}/"
    return {path: tuple(acl) for path, (_, acl) in group.state().items() if path.startswith(below)}


def moved(*phases: Phase, group: Group | None = None, migration: str = MIGRATION) -> Group:
    """The same with a control znode that has passed these phases."""
    group = group or stood()
    with group.process(migration=migration) as authority:
        carry_out(
            authority, [CreateControlZnode(authority, "copy"), *(AdvancePhase(authority, phase) for phase in phases)]
        )
    return group


def to(authority: ControlZnode, phase: Phase) -> MigrationStep:
    return AdvancePhase(authority, phase)


def acls(authority: ControlZnode, planned: dict[str, AccessList], *, members_leave: bool = True) -> SetFenceAcls:
    return SetFenceAcls(authority, TOPICS, planned, members_leave)


def fence_all(authority: ControlZnode, planned: dict[str, AccessList]) -> list[MigrationStep]:
    """The access list fence and the owner fences, as ``copy`` sets them."""
    return [
        acls(authority, planned),
        acls(authority, planned, members_leave=False),
        *owner_fence_steps(authority, PLANNED),
        CreateLateOwnerFences(authority, PLANNED),
    ]


def lift_all(authority: ControlZnode, planned: dict[str, AccessList]) -> list[MigrationStep]:
    return [RemoveOwnerFences(authority, planned), RestoreAcls(authority, TOPICS, planned)]


def run_of(make: Callable[[ControlZnode], list[MigrationStep]]) -> Callable[[ControlZnode], None]:
    """What a command does: hold the run, then its steps."""

    def run(authority: ControlZnode) -> None:
        carry_out(authority, [AcquireLock(authority, WHO), *make(authority)])

    return run


def is_open(acl: object) -> bool:
    return acl == frozenset(OPEN_ACL)
