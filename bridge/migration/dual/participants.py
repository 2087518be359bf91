"""The participants of a ``dual`` migration: registrations, acknowledgements, members of the coordinator group; and the
conditions of a phase.

ids/<consumer>                      registered                     compared as sets, by name, never as counts:
groups/G/members/<consumer>         acknowledged: epoch, phase     a member that died and a new one are two
DescribeGroups: user data           in the coordinator's group     members
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import MEMBERS_CHILD, phase_of
from bridge.migration.control.phases import Phase
from bridge.migration.dual.connector.migration_assignor import consumer_id_of_user_data, migration_protocol_name
from bridge.migration.dual.machine.acknowledgement import (
    BYTES_MAX,
    NO_GENERATION,
    Acknowledgement,
    acknowledgement_path,
    parse_acknowledgement,
)
from bridge.migration.dual.machine.phase_rules import MIGRATION_PROTOCOL, PHASE_RULES, member_phase_of
from bridge.migration.dual.non_acknowledging_members import (
    PHASES_ALLOWING_NON_ACKNOWLEDGING,
    consumer_of_non_acknowledging,
    is_non_acknowledging_name,
)
from zkconsumer.admin.text_format import list_text
from zkconsumer.admin.zookeeper_group import owner_kind
from zkconsumer.errors import InvalidNameError, MalformedZnode
from zkconsumer.kafka.coordinator_groups import STATES_WITHOUT_MEMBERS, CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import consumer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import ZnodeData
    from zkconsumer.zk.znode_formats import ControlRecord

STABLE_GROUP_STATE = "Stable"

PHASES_REQUIRING_CAUGHT_UP = frozenset({Phase.LOCKED, Phase.COPIED, Phase.RETURNING, Phase.RETURNED})
"""Phases that end when no member lags.  In the last of them Kafka gets the provenance that the next plan needs."""

PHASES_ALLOWING_NO_MEMBERS = frozenset({Phase.SWITCHED, Phase.COMPLETED, Phase.RETURNED, Phase.UNDOING, Phase.UNDONE})
"""Phases that end without any member too: a member would have nothing left to do."""

SPARK_QUERY_HINT = " (Spark queries only leave: a group of queries alone migrates with --strategy copy)"


@dataclass(frozen=True, slots=True)
class Participant:
    """One consumer id.  ``acknowledgement`` None: it has none; ``error``: why it cannot be parsed.

    ``is_registered`` False: it only acknowledged.  ``is_scala_consumer``: it created its owner nodes as a Scala
    consumer does.
    """

    consumer_id: str
    acknowledgement: Acknowledgement | None = None
    is_registered: bool = True
    is_scala_consumer: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class Participants:
    """All participants at one moment.  ``coordinator_group`` None: the coordinator did not return it."""

    control: ControlRecord
    by_consumer_id: Mapping[str, Participant]
    coordinator_group: CoordinatorGroup | None = field(default_factory=lambda: CoordinatorGroup("Empty"))

    @property
    def registered(self) -> frozenset[str]:
        """The names in ``ids``."""
        return frozenset(name for name, one in self.by_consumer_id.items() if one.is_registered)

    @property
    def acknowledged(self) -> frozenset[str]:
        """The members that have acknowledged the phase and epoch of the control znode."""
        return frozenset(
            name
            for name, one in self.by_consumer_id.items()
            if one.acknowledgement is not None and one.acknowledgement.matches_control(self.control)
        )

    @property
    def migration_protocol(self) -> str:
        """The protocol that no other client has."""
        return migration_protocol_name(self.control.migration_id)

    @property
    def in_coordinator_group(self) -> frozenset[str]:
        """The consumer ids in the coordinator group, as far as the migration's protocol contains them."""
        return frozenset(consumer_id_of_user_data(one.user_data) for one in self._members) & self.by_consumer_id.keys()

    @property
    def unknown_members(self) -> tuple[str, ...]:
        """The members of the coordinator group that are neither migrating members nor Spark queries, with client and
        host."""
        known = self.by_consumer_id.keys()
        return tuple(
            format_coordinator_member(one)
            for name, one in self._members_by_name
            if name not in known and not is_non_acknowledging_name(name)
        )

    @property
    def non_acknowledging_members(self) -> tuple[str, ...]:
        """Consumer ids of Spark queries that are in the coordinator's group, sorted."""
        return tuple(
            sorted(
                consumer_of_non_acknowledging(name)
                for name, _ in self._members_by_name
                if is_non_acknowledging_name(name)
            )
        )

    @property
    def _members_by_name(self) -> list[tuple[str, CoordinatorGroupMember]]:
        """The members and their names; only the migration's protocol contains names."""
        if self.coordinator_group is None or self.coordinator_group.protocol != self.migration_protocol:
            return []
        return [(consumer_id_of_user_data(one.user_data), one) for one in self._members]

    @property
    def _members(self) -> tuple[CoordinatorGroupMember, ...]:
        return () if self.coordinator_group is None else self.coordinator_group.members


def format_coordinator_member(member: CoordinatorGroupMember) -> str:
    """A member of the coordinator group without another name."""
    return f"{member.instance_id or member.member_id} ({member.client_id}, {member.host.lstrip('/')})"


# --- reading ----------------------------------------------------------------------------------------------------


def read_participants_by_id(
    session: AdminSession, group: str, owners: Callable[[], Mapping[TopicPartition, ZnodeData]]
) -> dict[str, Participant]:
    """All registered or acknowledged consumers, by name.

    ``owners``: reads the owner nodes, which show whether a Scala consumer created them; called only if a member has no
    acknowledgement, since there may be many owner nodes.
    """
    listed = session.children(paths.ids(group))
    names = frozenset(listed.names if listed else ())
    says = session.children(paths.control_child(group, MEMBERS_CHILD))
    said = {name: path for name in (says.names if says else ()) if (path := _path(group, name))}
    found = session.get_many(said.values())
    kinds: dict[str, set[str]] = {}
    is_silent = not names <= said.keys()
    for node in owners().values() if is_silent else ():
        kinds.setdefault(consumer_of(node.data.decode("utf-8", "replace")), set()).add(owner_kind(node))
    followers: dict[str, Participant] = {}
    for name in sorted(names | said.keys()):
        acknowledged, problem = _read(found.get(said.get(name, "")))
        original = bool(kinds.get(name, set()) - {"zkconsumer", "persistent"})
        followers[name] = Participant(name, acknowledged, name in names, original, problem)
    return {name: one for name, one in followers.items() if one.is_registered or one.acknowledgement or one.error}


def _path(group: str, name: str) -> str:
    try:
        return acknowledgement_path(group, name)
    except InvalidNameError:
        return ""


def _read(node: ZnodeData | None) -> tuple[Acknowledgement | None, str]:
    if node is None:
        return None, ""
    try:
        return parse_acknowledgement(node.data[: BYTES_MAX + 1]), ""
    except MalformedZnode as error:
        return None, str(error)


# --- conditions -------------------------------------------------------------------------------------------------


def pending_conditions(roster: Participants) -> list[str]:
    """The conditions for which the phase of the control znode waits, as texts; empty: none.

    After the switch no phase waits for a member without an acknowledgement: it owns nothing, and a fence blocks it.
    """
    control, phase = roster.control, phase_of(roster.control)
    duty = PHASE_RULES[member_phase_of(control)]
    words: list[str] = []
    if not roster.by_consumer_id and phase not in PHASES_ALLOWING_NO_MEMBERS:
        words.append(f"a member to register: the group is empty{SPARK_QUERY_HINT}")
    can_pass = phase in PHASES_ALLOWING_NO_MEMBERS
    for one in roster.by_consumer_id.values():
        if can_pass and one.acknowledgement is None and not one.error:
            continue
        words += _conditions_of_participant(
            one, control, joins=bool(duty.protocols), counts=phase in PHASES_REQUIRING_CAUGHT_UP
        )
    if not words and duty.protocols and phase is not Phase.COMPLETED:
        generations = {one.acknowledgement.generation for one in roster.by_consumer_id.values() if one.acknowledgement}
        if len(generations) > 1:
            words.append(f"the members to be in one generation (they acknowledged {list_text(sorted(generations))})")
        words += _conditions_of_group(roster, has_names=MIGRATION_PROTOCOL in duty.protocols)
    if not duty.protocols:
        gone = roster.in_coordinator_group
        words += [f"{name} to leave the coordinator group" for name in sorted(gone)]
    return words


def _conditions_of_participant(one: Participant, control: ControlRecord, *, joins: bool, counts: bool) -> list[str]:
    said = one.acknowledgement
    if one.error:
        return [f"{one.consumer_id} to acknowledge in the format of this release ({one.error})"]
    if said is None and one.is_scala_consumer:
        return [f"{one.consumer_id} to leave: it cannot migrate (a Scala consumer, by its owner nodes); stop it"]
    if said is None:
        return [
            f"{one.consumer_id} to acknowledge, as every MigratingConsumerConnector does, or to leave, as a Spark "
            "query does after its batch; if it is neither, restart it as a MigratingConsumerConnector, or stop it"
        ]
    if not one.is_registered and control.phase != Phase.COMPLETED.value:
        return [f"{one.consumer_id}, which acknowledged and is not registered, to register or to stop"]
    if not said.matches_control(control):
        return [
            f"{one.consumer_id} to follow to {control.phase}, epoch {control.epoch} (at {said.phase}, epoch "
            f"{said.epoch})"
        ]
    if joins and said.generation == NO_GENERATION:
        return [f"{one.consumer_id} to join the coordinator group"]
    if counts and said.behind:
        return [f"{one.consumer_id} to catch up with {said.behind} of its partitions"]
    return []


def _conditions_of_group(roster: Participants, *, has_names: bool) -> list[str]:
    """Whether the coordinator group has exactly the members that acknowledged."""
    coordinator_group = roster.coordinator_group
    if coordinator_group is None:
        return ["the coordinator to return the members of the group"]
    if coordinator_group.state in STATES_WITHOUT_MEMBERS and not roster.acknowledged:
        return []
    if coordinator_group.state != STABLE_GROUP_STATE:
        return [f"the coordinator group to become stable (it is {coordinator_group.state})"]
    if not has_names:
        return []
    if coordinator_group.protocol != roster.migration_protocol:
        names = list_text(format_coordinator_member(one) for one in coordinator_group.members)
        return [
            f"the coordinator group to use {roster.migration_protocol} (it uses {coordinator_group.protocol}: {names})"
        ]
    missing = sorted(roster.acknowledged - roster.in_coordinator_group)
    guests = () if phase_of(roster.control) in PHASES_ALLOWING_NON_ACKNOWLEDGING else roster.non_acknowledging_members
    return [
        *(f"{name} to join the coordinator group" for name in missing),
        *(f"{name} to leave the coordinator group: it cannot migrate; stop it" for name in roster.unknown_members),
        *(f"{name}, a Spark query, to leave the coordinator group, as it does after its batch" for name in guests),
    ]
