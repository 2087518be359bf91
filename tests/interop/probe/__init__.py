"""A black-box probe of a group coordinator: what brokers of each release do with a group, seen from outside.

    registry.check --> CHECKS: one small function for each thing that holds, named by a sentence
    target.Probe   --> the broker under test: its release, what it speaks, a group of one's own
    member.Member  --> one conversation with it, a connection of its own

The same checks run against real brokers and against ours that emulate the same releases, so ours is held to the real
thing.  Where releases differ, the check says so with ``probe.since``; what a release cannot do at all is left out by
the ``since`` and ``until`` of the check.
"""

from tests.interop.probe import (
    checks_admin,
    checks_commits,
    checks_heartbeats,
    checks_joining,
    checks_leaving,
    checks_rebalancing,
    checks_static_members,
    checks_syncing,
    checks_versions,
)
from tests.interop.probe.probed_broker import Probe, Server
from tests.interop.probe.registry import CHECKS, Check, checks_of

__all__ = [
    "CHECKS",
    "Check",
    "Probe",
    "Server",
    "checks_admin",
    "checks_commits",
    "checks_heartbeats",
    "checks_joining",
    "checks_leaving",
    "checks_of",
    "checks_rebalancing",
    "checks_static_members",
    "checks_syncing",
    "checks_versions",
]
