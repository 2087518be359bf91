"""Computes this member's assignment from a view of the group, and detects the assignment settings of other members.

ZooKeeper does not contain the assignment strategy.  So before this member joins, it compares the owners of the stable
group with its own computation: after it has joined a group with another strategy, the other members keep no partition
for longer than a moment.  When owners and assignment differ for long, ``diagnose`` logs which setting the others seem
to use.

With ``roundrobin.compatibility=auto`` the variant is detected from the owners.  While they match several variants
(those of a group with one thread always do), this member acquires only the partitions that all these variants assign
to it: a Scala consumer that finds our owner node on a partition of its own assignment releases everything, and then
its owners show nothing.  When the owners do not show a variant for long, the variant of 0.10.2 is used.

The variant is undecided until ``_compatibility`` is set; it is decided by the owners (``_detect_variant``), by two
reads in which all others wait like this member, or by the diagnosis.  A decided variant is never changed by a single
view, because in the middle of a rebalance a few owners match many variants; only the diagnosis changes it, which runs
after the owners and the assignment have differed for ``diagnose_after_ms``.  Nothing here is reset with the session:
the group is the same, and another variant would move all partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.errors import InvalidTopicFilter, MalformedZnode
from zkconsumer.member.commands import IncrementCounter, LogEvent
from zkconsumer.member.group_assignment import (
    AssignmentContext,
    AssignmentError,
    AssignorVariant,
    GroupAssignment,
    create_instance,
    detect_variants,
    explain_mismatch,
)
from zkconsumer.member.member_state_machine import MemberAssignment
from zkconsumer.member.topic_count import construct_topic_count
from zkconsumer.member.topic_filter import PatternNotEvaluable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_view import GroupView, TopicSubscription
    from zkconsumer.member.topic_count import ConsumerThreadId, TopicCount
    from zkconsumer.types import TopicPartition

ROUNDROBIN = "roundrobin"
AUTO = "auto"
PREFERRED_VARIANTS = (
    AssignorVariant.ROUNDROBIN_0_10_2,
    AssignorVariant.ROUNDROBIN_1_0,
    AssignorVariant.ROUNDROBIN_0_8_2,
)
"""``auto`` chooses the first of these that matches.  Where 0.8.2 accepts a group, it assigns as 0.10.2 does, except
for topics whose names have equal hashes; so it is chosen only if no other variant explains the owners.
"""
OWNERS_COMPARED_MAX = 16
DISTINCT_VARIANTS = (AssignorVariant.ROUNDROBIN_0_10_2, AssignorVariant.ROUNDROBIN_1_0)
"""The two orders in which partitions are assigned; while the owners match both, the variant is unknown."""


class ZooKeeperAssignmentPlanner:
    """Computes assignments for one member; remembers the detected variant and what it has logged."""

    def __init__(self, member: str, strategy: str, compatibility: str, *, exclude_internal_topics: bool) -> None:
        self._member = member
        self._strategy = strategy
        self._exclude_internal = exclude_internal_topics
        self._is_auto = strategy == ROUNDROBIN and compatibility == AUTO
        self._compatibility = "" if self._is_auto else compatibility
        """The variant of roundrobin in use; "" while it is undecided.  Only ``diagnose`` changes a decided one."""
        self._logged: set[str] = set()
        """The messages that are logged once for a process."""
        self._ignored: set[str] = set()
        """The members of the last view whose registration is invalid; each was logged and counted when it appeared."""
        self._has_preflighted = False
        """Until then views contain owners, to compare the strategy before this member joins."""
        self._last_owners: Mapping[TopicPartition, str] | None = None
        """The owners in the last view while the variant is undecided; two reads with the same owners may decide it."""

    def needs_owners(self) -> bool:
        """Whether the roundrobin variant is not detected yet, or no preflight was done."""
        return self._is_undecided or not self._has_preflighted

    def owners_max(self) -> int | None:
        """How many owners are enough to detect another strategy; None: all, to detect the roundrobin variant."""
        return None if self._is_auto else OWNERS_COMPARED_MAX

    def needs_whole_group(self) -> bool:
        """Roundrobin needs every topic of the group, range only our own."""
        return self._strategy == ROUNDROBIN

    def preflight(self, view: GroupView, subscription: TopicSubscription) -> MemberAssignment:
        """Check whether this subscription can join the group; detect the variant while we own nothing."""
        try:
            counts, notes = self._topic_counts(view)
        except PatternNotEvaluable as error:
            return MemberAssignment({}, unevaluable_filter=str(error))
        counts.pop(self._member, None)
        before = self._context(view, counts)
        notes += self._detect_variant(view, before) if self._is_auto else self._log_mismatch(view, before)
        self._has_preflighted = True
        refused = self._assignment_error(before)
        if not refused:
            counts[self._member] = construct_topic_count(self._member, subscription.pattern, subscription.topics)
            refused = self._assignment_error(self._context(view, counts))
            if refused:
                return MemberAssignment(
                    {}, f"this member's subscription cannot join the group: {refused}", log_commands=tuple(notes)
                )
        return MemberAssignment({}, log_commands=tuple(notes))

    def plan(self, view: GroupView) -> MemberAssignment:
        """Our assignment in a view in which this member is registered."""
        try:
            counts, notes = self._topic_counts(view)
        except PatternNotEvaluable as error:
            return MemberAssignment({}, unevaluable_filter=str(error))
        context = self._context(view, counts)
        notes += self._detect_variant(view, context)
        try:
            assignment = self._assign(context)
        except AssignmentError as error:
            return MemberAssignment({}, str(error), log_commands=tuple(notes))
        if assignment.topics_with_hash_collision:
            notes += self._log_once(
                "WARNING",
                "topic-hash-collision",
                f"topics={sorted(assignment.topics_with_hash_collision)}: equal hashes, members may disagree",
            )
        mine = {tp: str(thread) for tp, thread in assignment.own.items()}
        topics = frozenset(context.my_topic_thread_ids)
        owners = assignment.owners
        if self._strategy != ROUNDROBIN:
            # The view may lack topics that only others subscribe to; the Scala consumer's assignment omits them, too.
            owners = {tp: thread for tp, thread in owners.items() if tp.topic in topics}
        if not self._is_undecided:
            return MemberAssignment(mine, log_commands=tuple(notes), subscribed_topics=topics, group_assignment=owners)
        return self._undecided_assignment(mine, owners, view, context, notes)

    def plan_external(self, view: GroupView, given: Mapping[TopicPartition, str]) -> MemberAssignment:
        """The assignment from outside, limited to topics that our registration matches in this view.

        It is partial until the view has all of them.  The assignments of other members are unknown, so
        ``group_assignment`` contains only ours.
        """
        wanted = view.members[self._member]
        count = construct_topic_count(self._member, wanted.pattern, wanted.topics)
        topics = list(view.partitions_by_topic) if view.all_topics is None else view.all_topics
        try:
            threads = count.get_consumer_thread_ids_per_topic(topics, self._exclude_internal)
        except PatternNotEvaluable as error:
            return MemberAssignment({}, unevaluable_filter=str(error))
        ids = {topic: {str(thread): thread for thread in threads[topic]} for topic in threads}
        owners = {tp: ids[tp.topic][thread] for tp, thread in given.items() if thread in ids.get(tp.topic, ())}
        mine = {tp: str(thread) for tp, thread in owners.items()}
        return MemberAssignment(
            mine, is_partial=len(mine) < len(given), subscribed_topics=frozenset(threads), group_assignment=owners
        )

    def diagnose(self, view: GroupView) -> tuple[Command, ...]:
        """Compare the owners with the assignment; with ``auto``, change to a variant that explains them."""
        if view.owners is None:
            return ()
        try:
            counts, _ = self._topic_counts(view)
        except PatternNotEvaluable:
            return ()
        context = self._context(view, counts)
        if self._is_auto:
            fitting = self._matching_variants(view, context)
            if fitting and self._compatibility not in {form.compatibility for form in fitting}:
                self._compatibility = fitting[0].compatibility
                words = f"form={fitting[0].value}: the existing owners match this variant"
                return (LogEvent("WARNING", "roundrobin-variant", words),)
            if self._is_undecided:
                self._compatibility = PREFERRED_VARIANTS[0].compatibility
                words = f"form={PREFERRED_VARIANTS[0].value}: the existing owners do not show the variant"
                return (LogEvent("WARNING", "roundrobin-variant", words),)
        try:
            assignment = self._assign(context)
        except AssignmentError:
            return ()
        why = explain_mismatch(view.owners, assignment, context)
        if why:
            return tuple(self._log_once("WARNING", "assignment-mismatch", why))
        untaken = [
            tp for tp, of in assignment.owners.items() if tp not in view.owners and of.consumer_id != self._member
        ]
        if not untaken:
            return ()
        words = (
            f"partitions={len(untaken)} first={untaken[0]}: it is assigned to {assignment.owners[untaken[0]]}, which "
            "does not acquire it. That member has other settings, or has given up (a Scala consumer does so after "
            "rebalance.max.retries): compare the settings, and restart it"
        )
        return tuple(self._log_once("WARNING", "partitions-orphaned", words))

    # --- helpers ------------------------------------------------------------------------------------------------

    def _topic_counts(self, view: GroupView) -> tuple[dict[str, TopicCount], list[Command]]:
        """Every member's subscription; one that is invalid in Java is ignored, logged once and counted."""
        counts: dict[str, TopicCount] = {}
        notes: list[Command] = []
        left_out: set[str] = set()
        topics = list(view.partitions_by_topic) if view.all_topics is None else view.all_topics
        for member, wanted in view.members.items():
            try:
                count = construct_topic_count(member, wanted.pattern, wanted.topics)
                count.get_consumer_thread_ids_per_topic(topics, self._exclude_internal)
                counts[member] = count
            except PatternNotEvaluable as error:
                text = next(iter(wanted.topics), "")
                raise PatternNotEvaluable(
                    error.pattern, error.position, f"member={member} pattern={text!r}: {error.what}"
                ) from error
            except (InvalidTopicFilter, MalformedZnode) as error:
                left_out.add(member)
                if member not in self._ignored:
                    notes.append(IncrementCounter("registrations_ignored"))
                    notes.append(
                        LogEvent("WARNING", "registration-ignored", f"registration={member} reason={str(error)!r}")
                    )
        self._ignored = left_out
        return counts, notes

    def _context(self, view: GroupView, counts: Mapping[str, TopicCount]) -> AssignmentContext:
        return AssignmentContext(
            self._member,
            counts,
            view.partitions_by_topic,
            exclude_internal_topics=self._exclude_internal,
            topics=view.all_topics,
        )

    def _assign(self, context: AssignmentContext) -> GroupAssignment:
        form = self._compatibility or PREFERRED_VARIANTS[0].compatibility
        return create_instance(self._strategy, form).assign(context)

    def _assignment_error(self, context: AssignmentContext) -> str:
        try:
            self._assign(context)
        except AssignmentError as error:
            return str(error)
        return ""

    @property
    def _is_undecided(self) -> bool:
        return self._is_auto and not self._compatibility

    def _undecided_assignment(
        self,
        mine: Mapping[TopicPartition, str],
        owners: Mapping[TopicPartition, ConsumerThreadId],
        view: GroupView,
        context: AssignmentContext,
        notes: list[Command],
    ) -> MemberAssignment:
        """The partitions that every variant assigns to this member.

        If in two reads in a row all other members own exactly these partitions of theirs, they are members of this
        project and undecided, too; then this member chooses the default variant.  (A Scala consumer owns its whole
        assignment, or nothing for longer than a moment.)
        """
        topics = frozenset(context.my_topic_thread_ids)
        forms = [
            _assigned_by_member(create_instance(form.strategy, form.compatibility).assign(context))
            for form in DISTINCT_VARIANTS
        ]
        certain = {
            name: {tp: thread for tp, thread in share.items() if all(tp in other.get(name, ()) for other in forms)}
            for name, share in forms[0].items()
        }
        agreed = {tp: thread for tp, thread in owners.items() if tp in certain.get(thread.consumer_id, ())}
        own = certain.pop(self._member, {})
        if all(len(own) == len(form.get(self._member, ())) for form in forms):
            return MemberAssignment(mine, log_commands=tuple(notes), subscribed_topics=topics, group_assignment=agreed)
        held = _owned_by_member(view, context)
        is_same_look, self._last_owners = self._last_owners == view.owners, view.owners
        if is_same_look and all(part and held.get(name) == part for name, part in certain.items()):
            self._compatibility = PREFERRED_VARIANTS[0].compatibility
            words = f"form={PREFERRED_VARIANTS[0].value}: no owner shows another (roundrobin.compatibility=auto)"
            notes = [*notes, LogEvent("INFO", "roundrobin-variant", words)]
            return MemberAssignment(mine, log_commands=tuple(notes), subscribed_topics=topics, group_assignment=owners)
        words = (
            "form=unknown: the existing owners match several variants; acquiring only the partitions that all of them "
            "assign to this member"
        )
        notes = [*notes, *self._log_once("INFO", "roundrobin-variant", words)]
        return MemberAssignment(
            own, log_commands=tuple(notes), is_partial=True, subscribed_topics=topics, group_assignment=agreed
        )

    def _detect_variant(self, view: GroupView, context: AssignmentContext) -> list[Command]:
        """Choose a variant when the owners match it and do not match the other order, too."""
        fitting = self._matching_variants(view, context) if self._is_undecided else []
        if not fitting or all(form in fitting for form in DISTINCT_VARIANTS):
            return []
        self._compatibility = fitting[0].compatibility
        words = f"form={fitting[0].value}: the existing owners match this variant (roundrobin.compatibility=auto)"
        return [LogEvent("INFO", "roundrobin-variant", words)]

    def _matching_variants(self, view: GroupView, context: AssignmentContext) -> list[AssignorVariant]:
        """The variants that no owner contradicts, and that assign to some other member exactly what it owns.

        Exactly, because in the middle of a rebalance one or two owners match many variants.
        """
        held = _owned_by_member(view, context)
        fitting: list[AssignorVariant] = []
        for form in PREFERRED_VARIANTS:
            if form in detect_variants(view.owners or {}, context):
                shares = _assigned_by_member(create_instance(form.strategy, form.compatibility).assign(context))
                if any(held.get(name) == share for name, share in shares.items() if name != self._member):
                    fitting.append(form)
        return fitting

    def _log_mismatch(self, view: GroupView, context: AssignmentContext) -> list[Command]:
        """Log if all owners, before we join, match another setting and not ours."""
        owners = view.owners or {}
        fitting = detect_variants(owners, context)
        try:
            computed = self._assign(context)
        except AssignmentError:
            return []
        # In the middle of a rebalance fewer partitions are owned, and a few owners match many variants.
        is_at_rest = 2 * len(owners) > min(OWNERS_COMPARED_MAX, len(computed.owners))
        if not fitting or computed.variant in fitting or not is_at_rest:
            return []
        return self._log_once("WARNING", "assignment-mismatch", explain_mismatch(owners, computed, context))

    def _log_once(self, level: str, name: str, words: str) -> list[Command]:
        if words in self._logged:
            return []
        self._logged.add(words)
        return [LogEvent(level, name, words)]


OwnersByMember: TypeAlias = "dict[str, dict[TopicPartition, str]]"
"""Member -> partition -> thread id."""


def _assigned_by_member(assignment: GroupAssignment) -> OwnersByMember:
    """What the assignment assigns to each member."""
    found: OwnersByMember = {}
    for tp, thread in assignment.owners.items():
        found.setdefault(thread.consumer_id, {})[tp] = str(thread)
    return found


def _owned_by_member(view: GroupView, context: AssignmentContext) -> OwnersByMember:
    """What each member of the group owns."""
    consumers = {str(thread): thread.consumer_id for thread in context.ordered_threads}
    found: OwnersByMember = {}
    for tp, thread in (view.owners or {}).items():
        if thread in consumers:
            found.setdefault(consumers[thread], {})[tp] = thread
    return found
