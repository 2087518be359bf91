"""Members that compute other assignments than the rest.  Pure.

ZooKeeper does not contain the strategy, so it is inferred from the owners: the partitions of each member are compared
with its assignment under range and the three variants of roundrobin.

strategies-differ      no variant explains all owners, and the group is stable
topic-hash-collision   topics whose names have equal hashes: with roundrobin members may disagree on them
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.text_format import count_text, list_text
from zkconsumer.member.group_assignment import (
    AssignmentContext,
    AssignmentError,
    AssignorVariant,
    create_instance,
    explain_mismatch,
    topics_with_equal_hash,
)

if TYPE_CHECKING:
    from zkconsumer.member.group_assignment import GroupAssignment


def find(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Findings about the members' settings, inferred from the owners."""
    context = facts.assignment_context
    if context is None:
        return
    if facts.registered_owners and not facts.forms and facts.is_stable and not facts.state.migrating_members:
        yield _differ(facts, context)
    ties = topics_with_equal_hash(context.partitions_for_topic)
    if ties and facts.forms and AssignorVariant.RANGE not in facts.forms:
        yield DoctorFinding(
            "topic-hash-collision",
            "the group uses roundrobin, and the names of some of its topics have equal hashes: the order of these "
            "topics depends on hash maps, so even members of one release may compute different assignments",
            tuple(f"equal hashes: {', '.join(names)}" for names in ties),
            ("use range, or rename the topics",),
        )


def _differ(facts: GroupFacts, context: AssignmentContext) -> DoctorFinding:
    shares = {form: assignment for form in AssignorVariant if (assignment := _assigned(context, form)) is not None}
    by_member = {name: _matching_strategies(facts, name, shares) for name in facts.state.members}
    evidence = [
        f"{name} owns {list_text(_owned(facts, name)) or 'nothing'}: {_words(forms)}"
        for name, forms in by_member.items()
    ]
    base = shares[AssignorVariant.RANGE]
    return DoctorFinding(
        "strategies-differ",
        "no setting explains the present owners although no member joined or left: the members compute differently. "
        + explain_mismatch(facts.registered_owners, base, context).removesuffix("."),
        tuple(evidence),
        (
            "compare partition.assignment.strategy, the client's release (roundrobin changed in 1.0) and "
            "exclude.internal.topics of all members",
            f"zkconsumer groups describe {facts.group}",
        ),
    )


def _assigned(context: AssignmentContext, form: AssignorVariant) -> GroupAssignment | None:
    try:
        return create_instance(form.strategy, form.compatibility).assign(context)
    except AssignmentError:
        return None


def _owned(facts: GroupFacts, name: str) -> list[object]:
    return [tp for tp, owner in facts.state.owners.items() if owner.consumer_id == name]


def _matching_strategies(
    facts: GroupFacts, name: str, shares: dict[AssignorVariant, GroupAssignment]
) -> list[AssignorVariant]:
    """The variants that give this member exactly what it owns."""
    owned = {tp: thread for tp, thread in facts.registered_owners.items() if facts.state.owners[tp].consumer_id == name}
    return [
        form for form, assignment in shares.items()
        if {tp: str(thread) for tp, thread in assignment.of_member(name).items()} == owned
    ]  # fmt: skip


def _words(forms: list[AssignorVariant]) -> str:
    if not forms:
        return "no setting gives exactly this"
    return f"as {' or '.join(form.value for form in forms)} gives ({count_text(len(forms), 'variant')})"
