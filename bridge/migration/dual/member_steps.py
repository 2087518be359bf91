"""The steps that wait for members: until they acknowledge the phase, and until they own every subscribed partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_znode import VersionedControl
from bridge.migration.control.phases import Phase
from bridge.migration.dual.participants import Participants, pending_conditions, read_participants_by_id
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.owner_nodes import format_partitions, read_owner_nodes
from bridge.migration.fences.post_switch_fences import POST_SWITCH_PHASES
from bridge.migration.steps.step import StepDone, StepPending, StepStatus, StepWaiting
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_group import read_group
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import owner_text
from zkconsumer.zk.znode_formats import consumer_of

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.offsets.offset_copy_steps import OffsetStores
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup
    from zkconsumer.zk.requests import ZnodeData

CONDITIONS_SHOWN_MAX = 10


def read_participants(authority: ControlZnode, stores: OffsetStores, held: VersionedControl) -> Participants:
    """All participants now.  Raises ``UnavailableError``, and an error when the brokers do not answer."""
    session, group = authority.session, authority.group
    followers = read_participants_by_id(session, group, lambda: read_owner_nodes(session, group))
    return Participants(held.control, followers, stores.read_coordinator_group())


def format_conditions(words: list[str]) -> str:
    """The first conditions, and how many more there are."""
    more = len(words) - CONDITIONS_SHOWN_MAX
    return "; ".join(words[:CONDITIONS_SHOWN_MAX]) + (f"; and {count_text(more, 'more')}" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class WaitForScalaConsumersToLeave:
    """Before the first change: wait until no member is registered whose owner nodes are those of a Scala consumer."""

    control_znode: ControlZnode

    name = "only members of this library are in the group"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"check the owner nodes: no member in {paths.ids(self.control_znode.group)} is a Scala consumer"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        session, group = self.control_znode.session, self.control_znode.group
        followers = read_participants_by_id(session, group, lambda: read_owner_nodes(session, group))
        others = [name for name, one in followers.items() if one.is_scala_consumer]
        if not others:
            return StepDone()
        return StepWaiting(
            format_conditions([f"{name}, a Scala consumer by its owner nodes, to leave: stop it" for name in others])
        )

    def do(self) -> None:
        """There is nothing to do."""


@dataclass(frozen=True, slots=True)
class WaitForAcknowledgements:
    """Wait until every member has acknowledged this phase, and the coordinator group has the state it requires."""

    control_znode: ControlZnode
    stores: OffsetStores
    phase: Phase

    changes = False

    @property
    def name(self) -> str:
        """See ``MigrationStep``."""
        return f"every member acts by {self.phase.value}"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [
            f"wait until every member in {paths.ids(self.control_znode.group)} acknowledges {self.phase.value} by "
            "name, and the coordinator group has the state that this phase requires"
        ]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.control_znode.check_phase(self.phase)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        words = pending_conditions(read_participants(self.control_znode, self.stores, held))
        return StepWaiting(format_conditions(words)) if words else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises in a phase in which the check is not possible."""
        self.control_znode.require_phase(self.phase)


def consumed_partitions(state: ZooKeeperGroup) -> set[TopicPartition]:
    """The partitions that a registered member reads."""
    topics = {topic for member in state.members.values() for topic in member.threads if topic in state.topics}
    return {TopicPartition(topic, number) for topic in topics for number in state.topics[topic].partitions}


@dataclass(frozen=True, slots=True)
class WaitForFullOwnership:
    """Wait until every subscribed partition has the owner node of a member that acknowledged."""

    control_znode: ControlZnode
    stores: OffsetStores
    phase: Phase

    name = "members own every partition"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["wait until each subscribed partition is owned in ZooKeeper by a member that acknowledged"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.control_znode.check_phase(self.phase)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        session, group = self.control_znode.session, self.control_znode.group
        state = read_group(session, group)
        if state is None:
            return StepWaiting(f"a member to register, and create {paths.group_root(group)}, which was deleted")
        nodes = read_owner_nodes(session, group)
        ours = Participants(held.control, read_participants_by_id(session, group, lambda: nodes)).acknowledged
        words = [
            f"{owner_text(nodes[tp])}, which cannot migrate, to release {tp}: stop it"
            for tp in sorted(nodes)
            if _consumer(nodes[tp]) not in ours and parse_fence_record(nodes[tp].data) is None
        ]
        free = [
            tp
            for tp in sorted(consumed_partitions(state))
            if tp not in nodes or parse_fence_record(nodes[tp].data) is not None
        ]
        if free:
            words.append(f"a member to acquire {format_partitions(free)}")
        return StepWaiting(format_conditions(words)) if words else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises in a phase in which the check is not possible."""
        self.control_znode.require_phase(self.phase)


@dataclass(frozen=True, slots=True)
class WaitForForeignOwnersToRelease:
    """After the switch: wait until no owner nodes but fences are left."""

    control_znode: ControlZnode

    name = "no owners are left in ZooKeeper"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [f"wait until {paths.owners(self.control_znode.group)} has no owner nodes but fences"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.control_znode.check_phase(*POST_SWITCH_PHASES)
        if not isinstance(held, VersionedControl):
            return held or StepPending()
        nodes = read_owner_nodes(self.control_znode.session, self.control_znode.group)
        claims = {tp: node for tp, node in sorted(nodes.items()) if parse_fence_record(node.data) is None}
        if not claims:
            return StepDone()
        whose = sorted({owner_text(node) for node in claims.values()})
        return StepWaiting(f"{format_conditions(whose)} to release {format_partitions(list(claims))}: stop it")

    def do(self) -> None:
        """See ``MigrationStep``: there is nothing to do; raises before the switch."""
        self.control_znode.require_phase(*POST_SWITCH_PHASES)


def _consumer(node: ZnodeData) -> str:
    return consumer_of(node.data.decode("utf-8", "replace"))
