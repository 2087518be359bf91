"""The assignment of one member, and the Protocol of what computes it.

Only values and a Protocol: ``assignment_planner`` implements it, and ``member_state_machine`` acts on the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.commands import Command
    from zkconsumer.member.group_view import GroupView, TopicSubscription
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of this member in one view; ``own_partitions``: partition -> thread id of this member.

    ``error``: why there is no assignment, or "".  ``unevaluable_filter``: which member has a topic filter that cannot
    be evaluated exactly, and why; then this member must not join.  ``is_partial``: the assignment gets more partitions
    when the owner nodes of other members show which variant the group uses.  ``subscribed_topics``: the topics that
    our subscription matches in this view.  ``group_assignment``: the assignment of the whole group, as far as it is
    certain; None when there is no assignment.
    """

    own_partitions: Mapping[TopicPartition, str]
    error: str = ""
    unevaluable_filter: str = ""
    log_commands: tuple[Command, ...] = ()
    is_partial: bool = False
    subscribed_topics: frozenset[str] = frozenset()
    group_assignment: Mapping[TopicPartition, ConsumerThreadId] | None = None


class AssignmentPlanner(Protocol):
    """Computes the assignment; ``member.assignment_planner`` implements it."""

    def needs_owners(self) -> bool:
        """Whether the next view must contain the owners; they show which variant the group uses."""

    def owners_max(self) -> int | None:
        """How many owners are enough; None: the view must contain all of them."""

    def needs_whole_group(self) -> bool:
        """Whether the view must also contain topics to which only other members subscribe."""

    def preflight(self, view: GroupView, subscription: TopicSubscription) -> MemberAssignment:
        """The assignment that the group would have if this member joined with this subscription."""

    def plan(self, view: GroupView) -> MemberAssignment:
        """Our assignment in this view, in which this member is registered."""

    def plan_external(self, view: GroupView, given: Mapping[TopicPartition, str]) -> MemberAssignment:
        """The part of an assignment from outside whose topics this view contains."""

    def diagnose(self, view: GroupView) -> tuple[Command, ...]:
        """Log commands that explain why owners and assignment differ for so long; may change the variant in use."""
