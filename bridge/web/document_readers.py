"""Reads what the page shows: a session in, the document of a command out.  Each function blocks, for a bounded time.

They raise what the commands raise: ``UnavailableError`` when ZooKeeper does not answer, ``UsageError`` where a panel
needs a ZooKeeper and the session has none.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from bridge.commands.migrate_status import read_verify_document, status_document
from bridge.migration.inspect.migration_status import read_migration_status
from bridge.web.group_totals import StoredOffsets, stored_offsets
from zkconsumer.admin.admin_session import AnySession, BrokerAdminSession
from zkconsumer.admin.doctor import run_checks
from zkconsumer.admin.doctor.collect import collect_facts
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage
from zkconsumer.cli.common import require_admin_session
from zkconsumer.cli.groups import DescribeReport, group_list_document, read_describe_report, read_group_listings
from zkconsumer.cli.groups_doctor import configured_commit_interval_ms, doctor_document
from zkconsumer.cli.lag import first_lag_snapshot, lag_document
from zkconsumer.errors import PreconditionFailed
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.inspect.copied_offsets import CopiedOffsetsStatus
    from bridge.web.read_state import Document
    from zkconsumer.admin.lag_time_observer import LagTimeObserver

DOCTOR_INTERVAL_MS = 5_000
"""The time between the doctor's two reads, as ``groups doctor`` has it by default."""


def read_list_document(session: AnySession) -> tuple[Document, StoredOffsets]:
    """``groups list -o json``, and the offsets of the ZooKeeper groups, which were read for it."""
    offsets: StoredOffsets = {}
    found = read_group_listings(session, lambda each: offsets.update({each.line.group: stored_offsets(each)}))
    return group_list_document(found.lines, found.not_known), offsets


def read_group_report(
    session: AnySession, group: str, observer: LagTimeObserver | None = None
) -> DescribeReport | None:
    """``groups describe``; None if there is no such group.  ``observer``: the one of the reads before."""
    return read_describe_report(session, group, observer=observer)


def read_lag_document(session: AnySession, group: str) -> Document | None:
    """``lag -o json``; None if there is no such group."""
    _, _, found = first_lag_snapshot(session, group)
    return None if found is None else lag_document(found) | {"exit_code": 1 if found.not_known else 0}


class MoveReader:
    """``migrate status -o json``; keeps the copied offsets for some reads, as ``--watch`` does: there may be many."""

    def __init__(self, compare_every: int) -> None:
        self._compare_every = compare_every
        self._copied: dict[str, tuple[int, CopiedOffsetsStatus | None]] = {}

    def __call__(self, session: AnySession, group: str) -> Document | None:
        """None if there is no such group, and no migration of it."""
        session = require_admin_session(session, "a migration has its state in ZooKeeper")
        if not paths.is_group(group):
            return None
        number, copied = self._copied.get(group, (0, None))
        found = read_migration_status(session, group, copied if number % self._compare_every else None)
        self._copied[group] = (number + 1, found.copied)
        if not found.group_exists:
            self.forget(group)
            return None
        return status_document(found, found.next_commands)

    def forget(self, group: str) -> None:
        """Drop what is kept of a group that no viewer shows any more."""
        self._copied.pop(group, None)


def read_doctor_document(session: AnySession, group: str) -> Document | None:
    """``groups doctor -o json``; takes ``DOCTOR_INTERVAL_MS`` and the time of the requests."""
    session = require_admin_session(session, "groups doctor examines groups in ZooKeeper")
    if not paths.is_group(group):
        return None
    facts = collect_facts(
        session,
        group,
        DOCTOR_INTERVAL_MS,
        configured_commit_interval_ms(session),
        stores_in_kafka=configured_storage(session) == "kafka",
    )
    return None if facts is None else doctor_document(facts, run_checks(facts))


def read_verify(session: AnySession, group: str) -> Document | None:
    """``migrate verify -o json``; None where there is nothing to compare: no migration, or not in this phase."""
    if isinstance(session, BrokerAdminSession) or not paths.is_group(group):
        return None
    if session.get(paths.control(group)) is None:
        return None
    try:
        return dict(read_verify_document(session, group))
    except PreconditionFailed as error:
        return {"schema": None, "group": group, "reason": str(error), "next_steps": [_status_command(group)]}


def _status_command(group: str) -> str:
    return f"zkconsumer migrate status {shlex.quote(group)}"
