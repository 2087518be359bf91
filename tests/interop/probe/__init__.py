"""A black-box probe of a group coordinator: what brokers of each release do with a group, observed from outside.

    registry.check      --> CHECKS: one small function for each fact, whose name is a sentence
    probed_broker.Probe --> the broker under test: its release, its supported requests, a group of its own
    member.Member       --> one conversation with it, over a connection of its own

The same checks run against real brokers and against ours that emulate the same releases, so ours must behave like the
real ones.  Where releases differ, the check uses ``probe.since``; the ``since`` and ``until`` of a check exclude
releases that do not support it.
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
