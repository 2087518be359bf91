"""Computes this member's assignment from a view of the group, and detects the assignment settings of other members.

    preflight --> registered --> plan, plan, ... --owners differ for long--> diagnose --> plan, ...

Theory of operation
-------------------

*Why the owners are compared.*  ZooKeeper does not contain the assignment strategy, and members with different settings
compute different assignments.  Then two members try to acquire the same partition, and another one has no owner.  The
owner nodes of a stable group show what its members compute.  So this member compares them with its own computation
before it joins (``preflight``): after it has joined a group with another strategy, the other members keep no partition
for longer than a moment, because a Scala consumer that finds one partition of its assignment owned by us releases all
of its own (``defect_21_other_settings_of_the_group_are_logged_before_the_join.txt``).  When owners and assignment
differ for long, ``diagnose`` logs which setting the others seem to use.

*What is computed.*  Each member computes the assignment of the whole group and takes its own part.  Registrations that
Java cannot evaluate are left out, as no Scala consumer can use them
(``defect_06_an_invalid_registration_does_not_stop_the_group.txt``).  A topic filter that Java may evaluate and this
library cannot is different: to leave its member out could give a partition two owners, so this member leaves the group
(``a_topic_filter_that_cannot_be_evaluated_excludes_the_member.txt``).

*The variant of roundrobin* (``roundrobin.compatibility=auto``).  Kafka 1.0 changed the text of a partition and with it
the order in which partitions are assigned (KAFKA-5822), so one strategy has variants.  The variant is detected from the
owners.  It is *undecided* until ``_compatibility`` is set:

    undecided --owners match one order only (preflight, plan)-----------------> decided: that variant
    undecided --two reads in which all others wait as this member does (plan)-> decided: 0.10.2
    undecided --the assignment is incomplete for long (diagnose)--------------> decided: one that matches, else 0.10.2
    decided   --owners match only other variants for long (diagnose)----------> decided: one of these

The owners often match several variants; those of a group with one thread always do.  While the variant is undecided,
this member acquires only the partitions that every variant assigns to it.  If it acquired a partition that the variant
of a Scala consumer assigns to that consumer, the consumer would release everything.  Then there are no owner nodes of
others any more, and the variant cannot be detected
(``roundrobin_auto_waits_until_the_owners_of_a_scala_member_show_its_variant.txt``).

A decided variant is never changed by a single view, because in the middle of a rebalance a few owners match many
variants (``roundrobin_auto_keeps_its_variant_while_the_owners_match_it.txt``).  ``diagnose`` runs after the owners and
the assignment have differed for ``diagnose_after_ms``.

*Sessions and lost answers.*  The end of the session resets nothing here: the group is the same, and another variant
would move all partitions.  The planner sees complete views only; a read whose answer is lost is repeated before.
"""

from __future__ import annotations

from dataclasses import replace
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
from zkconsumer.member.member_assignment import MemberAssignment
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
"""How many owner nodes a preflight reads, spread evenly over the partitions, to see whether the group uses another
strategy.  A server without multiRead needs one packet for each, and a join must not cost a packet for each partition.
With ``auto`` all owners are read: a variant must explain each of them."""
DISTINCT_VARIANTS = (AssignorVariant.ROUNDROBIN_0_10_2, AssignorVariant.ROUNDROBIN_1_0)
"""The two orders in which partitions are assigned; while the owners match both, the variant is unknown."""


class ZooKeeperAssignmentPlanner:
    """Computes assignments for one member; remembers the detected variant and what it has logged."""

    def __init__(self, member: str, strategy: str, compatibility: str, *, exclude_internal_topics: bool) -> None:
        self._member = member
        self._strategy = strategy
        self._exclude_internal = exclude_internal_topics
        """Our own setting, applied to the filters of all members, as in the Scala consumer: theirs is not stored."""
        self._is_auto = strategy == ROUNDROBIN and compatibility == AUTO
        self._compatibility = "" if self._is_auto else compatibility
        """The variant of roundrobin in use; "" while it is undecided.  With ``auto`` ``diagnose`` may change a decided
        one, else it is constant."""
        self._logged: set[str] = set()
        """The messages that are logged once for a process."""
        self._ignored: set[str] = set()
        """The members of the last view whose registration is invalid; each was logged and counted when it appeared."""
        self._has_preflighted = False
        """Until then views contain owners, to compare the strategy before this member joins.  Never False again: the
        owners cost packets, and the group is the same."""
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
        """Check whether this subscription can join the group; detect the variant while we own nothing.

        Returns no partitions.  ``error`` only if the group is assigned without this member and would not be with it:
        the variant 0.8.2 refuses groups with unequal subscriptions, and this member would stop all others
        (``defect_17_a_member_that_cannot_join_the_group_does_not_register.txt``).  A group that is refused already does
        not become worse by this member.  A registration of ours in the view is of another session; it does not count.
        """
        try:
            counts, notes = self._topic_counts(view)
        except PatternNotEvaluable as error:
            return MemberAssignment({}, unevaluable_filter=str(error))
        counts.pop(self._member, None)
        before = self._context(view, counts)
        notes += self._detect_variant(view, before) if self._is_auto else self._log_mismatch(view, before)
        self._has_preflighted = True
        why = ""
        if isinstance(self._assign(before), GroupAssignment):
            counts[self._member] = construct_topic_count(self._member, subscription.pattern, subscription.topics)
            assignment = self._assign(self._context(view, counts))
            if isinstance(assignment, str):
                why = f"this member's subscription cannot join the group: {assignment}"
        return MemberAssignment({}, why, log_commands=tuple(notes))

    def plan(self, view: GroupView) -> MemberAssignment:
        """Our assignment in a view in which this member is registered.

        ``error`` when the variant 0.8.2 refuses the group.  Then no member has an assignment until all subscriptions
        are equal (``roundrobin_of_0_8_2_waits_for_equal_subscriptions.txt``).
        """
        assert self._member in view.members, "without a registration this member must register, not plan"
        try:
            counts, notes = self._topic_counts(view)
        except PatternNotEvaluable as error:
            return MemberAssignment({}, unevaluable_filter=str(error))
        context = self._context(view, counts)
        notes += self._detect_variant(view, context)
        assignment = self._assign(context)
        if isinstance(assignment, str):
            return MemberAssignment({}, assignment, log_commands=tuple(notes))
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
        whole = MemberAssignment(mine, log_commands=tuple(notes), subscribed_topics=topics, group_assignment=owners)
        return self._undecided_assignment(whole, owners, view, context) if self._is_undecided else whole

    def plan_external(self, view: GroupView, given: Mapping[TopicPartition, str]) -> MemberAssignment:
        """The assignment from outside, limited to topics that our registration matches in this view.

        It is partial until the view has all of them
        (``an_external_assignment_waits_for_topics_that_the_view_does_not_contain.txt``).  The assignments of other
        members are unknown, so ``group_assignment`` contains only ours.  Filters of other members do not matter: no
        other assignment is computed.
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
        """Compare the owners with the assignment; with ``auto``, change to a variant that explains them.

        The caller has waited ``diagnose_after_ms``, until the attempts of a Scala consumer with our settings are over.
        It computes the assignment from the same view afterwards.  So an unevaluable filter is reported there; an
        invalid registration is reported here, because ``plan`` counts it as reported
        (``an_invalid_registration_that_is_first_read_for_a_diagnosis_is_logged.txt``).
        """
        if view.owners is None:
            return ()
        try:
            counts, notes = self._topic_counts(view)
        except PatternNotEvaluable:
            return ()
        context = self._context(view, counts)
        return (*notes, *(self._reconsider_variant(view, context) or self._explain_owners(view, view.owners, context)))

    # --- helpers ------------------------------------------------------------------------------------------------

    def _reconsider_variant(self, view: GroupView, context: AssignmentContext) -> list[Command]:
        """With ``auto``: change to a variant that the owners match, or decide an undecided one by default."""
        fitting = self._matching_variants(view, context) if self._is_auto else []
        if fitting and self._compatibility not in {form.compatibility for form in fitting}:
            words = self._choose(fitting[0], "the existing owners match this variant")
            return [LogEvent("WARNING", "roundrobin-variant", words)]
        if self._is_undecided:
            words = self._choose(PREFERRED_VARIANTS[0], "the existing owners do not show the variant")
            return [LogEvent("WARNING", "roundrobin-variant", words)]
        return []

    def _explain_owners(
        self, view: GroupView, owners: Mapping[TopicPartition, str], context: AssignmentContext
    ) -> list[Command]:
        """Why owners and assignment differ: another setting, or partitions that their member does not acquire."""
        assignment = self._assign(context)
        if isinstance(assignment, str):
            return []
        why = explain_mismatch(owners, assignment, context)
        if why:
            return self._log_once("WARNING", "assignment-mismatch", why)
        untaken = [tp for tp, of in assignment.owners.items() if tp not in owners and of.consumer_id != self._member]
        if not untaken:
            return []
        words = (
            f"partitions={len(untaken)} first={untaken[0]}: it is assigned to {assignment.owners[untaken[0]]}, which "
            "does not acquire it. That member has other settings, or has given up (a Scala consumer does so after "
            "rebalance.max.retries): compare the settings, and restart it"
        )
        return self._log_once("WARNING", "partitions-orphaned", words)

    def _choose(self, variant: AssignorVariant, why: str) -> str:
        """Use this variant from now on; returns the text of the log line."""
        assert self._is_auto, "a variant that is configured is never replaced"
        assert variant.compatibility != self._compatibility, "a choice is a change"
        self._compatibility = variant.compatibility
        return f"form={variant.value}: {why}"

    def _topic_counts(self, view: GroupView) -> tuple[dict[str, TopicCount], list[Command]]:
        """Every member's subscription; one that is invalid in Java is ignored, logged once and counted.

        The log commands must be emitted: the next call for a view with the same registration returns none.  Raises
        ``PatternNotEvaluable`` with the name of the member; ``_ignored`` is then unchanged.
        """
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
                    words = f"registration={member} reason={str(error)!r}"
                    notes += [
                        IncrementCounter("registrations_ignored"),
                        LogEvent("WARNING", "registration-ignored", words),
                    ]
        self._ignored = left_out
        assert len(counts) + len(left_out) == len(view.members), "each registration counts, or is ignored"
        return counts, notes

    def _context(self, view: GroupView, counts: Mapping[str, TopicCount]) -> AssignmentContext:
        return AssignmentContext(
            self._member,
            counts,
            view.partitions_by_topic,
            exclude_internal_topics=self._exclude_internal,
            topics=view.all_topics,
        )

    def _assign(self, context: AssignmentContext) -> GroupAssignment | str:
        """The assignment of the group by the variant in use; or why that variant refuses the group (only 0.8.2)."""
        form = self._compatibility or PREFERRED_VARIANTS[0].compatibility
        try:
            return create_instance(self._strategy, form).assign(context)
        except AssignmentError as error:
            return str(error)

    @property
    def _is_undecided(self) -> bool:
        return self._is_auto and not self._compatibility

    def _undecided_assignment(
        self,
        whole: MemberAssignment,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        view: GroupView,
        context: AssignmentContext,
    ) -> MemberAssignment:
        """The partitions that every variant assigns to this member; ``whole`` and ``owners``: what the default assigns.

        If in two reads in a row all other members own exactly these partitions of theirs, they are members of this
        project and undecided, too; then this member chooses the default variant.  (A Scala consumer owns its whole
        assignment, or nothing for longer than a moment.)  One read is not enough: a Scala consumer in the middle of its
        acquisitions may own the same partitions
        (``roundrobin_auto_selects_the_default_when_all_members_wait_for_each_other.txt``).

        The variants may agree about this member and differ about others.  Then the assignment is complete, and the
        variant stays undecided.
        """
        assert self._is_undecided, "a decided variant assigns everything"
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
        assert own.keys() <= whole.own_partitions.keys(), "what every variant assigns, the default one assigns, too"
        if all(len(own) == len(form.get(self._member, ())) for form in forms):
            return replace(whole, group_assignment=agreed)
        held = _owned_by_member(view, context)
        is_same_read, self._last_owners = self._last_owners == view.owners, view.owners
        if is_same_read and all(part and held.get(name) == part for name, part in certain.items()):
            words = self._choose(PREFERRED_VARIANTS[0], "no owner shows another (roundrobin.compatibility=auto)")
            return replace(whole, log_commands=(*whole.log_commands, LogEvent("INFO", "roundrobin-variant", words)))
        words = (
            "form=unknown: the existing owners match several variants; acquiring only the partitions that all of them "
            "assign to this member"
        )
        log_commands = (*whole.log_commands, *self._log_once("INFO", "roundrobin-variant", words))
        return replace(whole, own_partitions=own, log_commands=log_commands, is_partial=True, group_assignment=agreed)

    def _detect_variant(self, view: GroupView, context: AssignmentContext) -> list[Command]:
        """Choose a variant when the owners match it and do not match the other order, too."""
        fitting = self._matching_variants(view, context) if self._is_undecided else []
        if not fitting or all(form in fitting for form in DISTINCT_VARIANTS):
            return []
        words = self._choose(fitting[0], "the existing owners match this variant (roundrobin.compatibility=auto)")
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
        """Log if all owners, before we join, match another setting and not ours.

        A mismatch that no setting explains is not logged: the group may be in a rebalance.  If it lasts after the join,
        ``diagnose`` logs it.
        """
        owners = view.owners or {}
        fitting, computed = detect_variants(owners, context), self._assign(context)
        if isinstance(computed, str) or not fitting or computed.variant in fitting:
            return []
        # In the middle of a rebalance fewer partitions are owned, and a few owners match many variants.
        if 2 * len(owners) <= min(OWNERS_COMPARED_MAX, len(computed.owners)):
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
    """What each member of the group owns; an owner that is no thread of a registered member does not count.

    It may belong to a member that has ended: both nodes are ephemeral, but they are read one after the other.
    """
    consumers = {str(thread): thread.consumer_id for thread in context.ordered_threads}
    found: OwnersByMember = {}
    for tp, thread in (view.owners or {}).items():
        if thread in consumers:
            found.setdefault(consumers[thread], {})[tp] = thread
    return found
