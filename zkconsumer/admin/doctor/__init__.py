"""Finds problems of a group: facts in, findings out.  Pure, except for ``collect``.

    collect        reads the group twice, some seconds apart, the codecs of its topics, and the coordinator group of
                   the same name
    facts          what was read, as values
    one file for each family of findings, each with ``find(facts)``:

    registration_findings  registrations that stop or mislead other members
    assignment_findings    members that compute other assignments than the rest
    owner_findings         owner nodes without a member, partitions without an owner, members without their assignment
    progress_findings      partitions without progress, offsets that went back
    offset_findings        stored offsets that cannot be right
    environment_findings   causes outside of the group: zstd, coordinator groups, old brokers, a migration

To add a finding: write it in the file of its family, with a test that has the finding and one that does not.
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
    """Return all findings, in the order of the families."""
    return [finding for family in CHECK_MODULES for finding in family.find(facts)]


__all__ = ["CHECK_MODULES", "DoctorFinding", "GroupFacts", "run_checks"]
