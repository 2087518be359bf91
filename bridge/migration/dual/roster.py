"""Who is registered, who acknowledged what, who is in the coordinator's group; and who is waited for in a phase.

ids/<consumer>                      registered                     compared as sets, by name, never as counts:
groups/G/members/<consumer>         acknowledged: epoch, phase     a member that died and one that came are two
DescribeGroups: user data           in the coordinator's group     members
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.migration.connector.private import consumer_of_member, private_protocol
from bridge.migration.control import MEMBERS, phase_of
from bridge.migration.guests import WELCOME, consumer_of_guest, is_guest
from bridge.migration.member.acknowledgement import (
    BYTES_MAX,
    NO_GENERATION,
    Acknowledgement,
    acknowledgement_path,
    parse_acknowledgement,
)
from bridge.migration.member.duty import DUTIES, PRIVATE, stance_of
from bridge.migration.phases import Phase
from zkconsumer.admin.groups import owner_kind
from zkconsumer.admin.words import some
from zkconsumer.errors import MalformedZnode, UnsafeName
from zkconsumer.kafka.modern_groups import NOBODY_THERE, ModernGroup, ModernMember
from zkconsumer.zk import paths
from zkconsumer.zk.znodes import consumer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.admin.session import AdminSession
    from zkconsumer.types import TopicPartition
    from zkconsumer.zk.requests import Node
    from zkconsumer.zk.znodes import Control

STABLE = "Stable"

CAUGHT_UP = frozenset({Phase.LOCKED, Phase.COPIED, Phase.RETURNING, Phase.RETURNED})
"""Phases that end when no member is behind.  In the last of them Kafka gets the provenance that the next plan needs."""

CAN_BE_EMPTY = frozenset({Phase.SWITCHED, Phase.COMPLETED, Phase.RETURNED, Phase.UNDOING, Phase.UNDONE})
"""Phases that end without any member too: nothing that a member would have to do is left."""

NO_QUERIES = " (Spark queries only step aside: a group of queries alone moves with --strategy copy)"


@dataclass(frozen=True, slots=True)
class Follower:
    """One consumer id.  ``said`` None: it says nothing; ``problem``: why what it says cannot be read.

    ``is_registered`` False: it only acknowledged.  ``is_original``: its claims are not made as ours are.
    """

    consumer: str
    said: Acknowledgement | None = None
    is_registered: bool = True
    is_original: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Roster:
    """Everybody, at one moment.  ``modern`` None: the coordinator does not tell."""

    control: Control
    followers: Mapping[str, Follower]
    modern: ModernGroup | None = field(default_factory=lambda: ModernGroup("Empty"))

    @property
    def registered(self) -> frozenset[str]:
        """The names in ``ids``."""
        return frozenset(name for name, one in self.followers.items() if one.is_registered)

    @property
    def acknowledged(self) -> frozenset[str]:
        """Who acts by the phase and epoch of the control znode."""
        return frozenset(
            name for name, one in self.followers.items() if one.said is not None and one.said.is_of(self.control)
        )

    @property
    def private(self) -> str:
        """The protocol that nobody else has."""
        return private_protocol(self.control.migration_id)

    @property
    def joined(self) -> frozenset[str]:
        """Which consumers are in the coordinator's group, as far as their protocol tells."""
        return frozenset(consumer_of_member(one.user_data) for one in self._members) & self.followers.keys()

    @property
    def strangers(self) -> tuple[str, ...]:
        """Who is in the coordinator's group and no member that moves, nor a guest, with client and host."""
        known = self.followers.keys()
        return tuple(words_of(one) for name, one in self._named if name not in known and not is_guest(name))

    @property
    def guests(self) -> tuple[str, ...]:
        """Consumer ids of Spark queries that are in the coordinator's group, sorted."""
        return tuple(sorted(consumer_of_guest(name) for name, _ in self._named if is_guest(name)))

    @property
    def _named(self) -> list[tuple[str, ModernMember]]:
        """Who is there, and by what name: only by the private protocol is it told."""
        if self.modern is None or self.modern.protocol != self.private:
            return []
        return [(consumer_of_member(one.user_data), one) for one in self._members]

    @property
    def _members(self) -> tuple[ModernMember, ...]:
        return () if self.modern is None else self.modern.members


def words_of(member: ModernMember) -> str:
    """A member of the coordinator's group that has no other name."""
    return f"{member.instance_id or member.member_id} ({member.client_id}, {member.host.lstrip('/')})"


# --- looking ----------------------------------------------------------------------------------------------------


def followers_of(
    session: AdminSession, group: str, owners: Callable[[], Mapping[TopicPartition, Node]]
) -> dict[str, Follower]:
    """Everybody who is registered or acknowledged, by name.

    ``owners``: reads the owner nodes, which show whose claims are an original member's; asked only where somebody says
    nothing, since there may be many.
    """
    listed = session.children(paths.ids(group))
    names = frozenset(listed.names if listed else ())
    says = session.children(paths.control_child(group, MEMBERS))
    said = {name: path for name in (says.names if says else ()) if (path := _path(group, name))}
    found = session.get_many(said.values())
    kinds: dict[str, set[str]] = {}
    is_silent = not names <= said.keys()
    for node in owners().values() if is_silent else ():
        kinds.setdefault(consumer_of(node.data.decode("utf-8", "replace")), set()).add(owner_kind(node))
    followers: dict[str, Follower] = {}
    for name in sorted(names | said.keys()):
        acknowledged, problem = _read(found.get(said.get(name, "")))
        original = bool(kinds.get(name, set()) - {"zkconsumer", "persistent"})
        followers[name] = Follower(name, acknowledged, name in names, original, problem)
    return {name: one for name, one in followers.items() if one.is_registered or one.said or one.problem}


def _path(group: str, name: str) -> str:
    try:
        return acknowledgement_path(group, name)
    except UnsafeName:
        return ""


def _read(node: Node | None) -> tuple[Acknowledgement | None, str]:
    if node is None:
        return None, ""
    try:
        return parse_acknowledgement(node.data[: BYTES_MAX + 1]), ""
    except MalformedZnode as error:
        return None, str(error)


# --- who is waited for ------------------------------------------------------------------------------------------


def waited_for(roster: Roster) -> list[str]:
    """Whom the phase of the control znode waits for, and why, each in words; empty: nobody.

    Behind the switch, who says nothing at all is not waited for: it owns nothing that counts, and meets a fence.
    """
    control, phase = roster.control, phase_of(roster.control)
    duty = DUTIES[stance_of(control)]
    words: list[str] = []
    if not roster.followers and phase not in CAN_BE_EMPTY:
        words.append(f"a member to register: nobody is in the group{NO_QUERIES}")
    can_pass = phase in CAN_BE_EMPTY
    for one in roster.followers.values():
        if can_pass and one.said is None and not one.problem:
            continue
        words += _why_late(one, control, joins=bool(duty.protocols), counts=phase in CAUGHT_UP)
    if not words and duty.protocols and phase is not Phase.COMPLETED:
        generations = {one.said.generation for one in roster.followers.values() if one.said}
        if len(generations) > 1:
            words.append(f"the members to be in one generation (they say {some(sorted(generations))})")
        words += _not_together(roster, has_names=PRIVATE in duty.protocols)
    if not duty.protocols:
        gone = roster.joined
        words += [f"{name} to leave the coordinator's group" for name in sorted(gone)]
    return words


def _why_late(one: Follower, control: Control, *, joins: bool, counts: bool) -> list[str]:
    said = one.said
    if one.problem:
        return [f"{one.consumer} to acknowledge in words of this release ({one.problem})"]
    if said is None and one.is_original:
        return [
            f"{one.consumer} to leave: it is no member that can follow (an original one, as its claims show); stop it"
        ]
    if said is None:
        return [
            f"{one.consumer} to acknowledge, as every MigratingConsumerConnector does, or to step aside, as a Spark "
            "query does when its batch is over; if it is neither, start it anew as such a member, or stop it"
        ]
    if not one.is_registered and control.phase != Phase.COMPLETED.value:
        return [f"{one.consumer}, which acknowledged and is not registered, to register or to end"]
    if not said.is_of(control):
        return [
            f"{one.consumer} to follow to {control.phase}, epoch {control.epoch} (at {said.phase}, epoch {said.epoch})"
        ]
    if joins and said.generation == NO_GENERATION:
        return [f"{one.consumer} to join the coordinator's group"]
    if counts and said.behind:
        return [f"{one.consumer} to bring up {said.behind} of its partitions"]
    return []


def _not_together(roster: Roster, *, has_names: bool) -> list[str]:
    """Whether the coordinator's group has exactly the members that acknowledged."""
    modern = roster.modern
    if modern is None:
        return ["the coordinator to tell who is in the group"]
    if modern.state in NOBODY_THERE and not roster.acknowledged:
        return []
    if modern.state != STABLE:
        return [f"the coordinator's group to come to rest (it is {modern.state})"]
    if not has_names:
        return []
    if modern.protocol != roster.private:
        names = some(words_of(one) for one in modern.members)
        return [f"the coordinator's group to divide by {roster.private} (it does by {modern.protocol}: {names})"]
    missing = sorted(roster.acknowledged - roster.joined)
    guests = () if phase_of(roster.control) in WELCOME else roster.guests
    return [
        *(f"{name} to be in the coordinator's group" for name in missing),
        *(f"{name} to leave the coordinator's group: it is no member that moves; stop it" for name in roster.strangers),
        *(f"{name}, a Spark query, to leave the coordinator's group, as it does behind its batch" for name in guests),
    ]
