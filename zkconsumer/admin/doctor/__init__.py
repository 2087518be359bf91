"""What is wrong with a group: facts in, findings out.  Pure, but for ``collect``.

    collect        reads: two looks at the group some seconds apart, codecs of its topics, the modern group of its name
    facts          what was read, as values
    one file a family of findings, each with ``find(facts)``:

    registrations  those that stop or mislead other members
    strategies     members that compute other shares than the rest
    owners         claims of nobody, partitions without an owner, members without their share
    movement       partitions that stand still, offsets that went back
    offsets        stored offsets that cannot be what they should be
    outside        what stops the whole group from outside: zstd, modern members, brokers too old, a migration

To add a finding: write it in the file of its family, with a test that meets it and one that does not.
"""

from __future__ import annotations

from zkconsumer.admin.doctor import (
    assignment_findings,
    environment_findings,
    offset_findings,
    owner_findings,
    progress_findings,
    registration_findings,
)
from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts

CHECK_MODULES = (
    registration_findings,
    assignment_findings,
    owner_findings,
    progress_findings,
    offset_findings,
    environment_findings,
)


def run_checks(facts: GroupFacts) -> list[DoctorFinding]:
    """Everything that is found, in the order of the families."""
    return [finding for family in CHECK_MODULES for finding in family.find(facts)]


__all__ = ["CHECK_MODULES", "DoctorFinding", "GroupFacts", "run_checks"]
