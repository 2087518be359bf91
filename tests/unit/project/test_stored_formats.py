"""What is stored in ZooKeeper, in files and in Kafka, and what other programs are told, is the same in every release.

Each file of ``tests/data/stored`` holds one format as an earlier release wrote it.  The same values must give the same
bytes, and those bytes the same values.  A file that differs is not to be written anew: members, plans, checkpoints and
journals of the earlier release are still there.  A new format gets another schema or version, and a further file.

A ``.json`` file has the samples of one format by name: text, ``hex:`` and hexadecimal digits for other bytes, a list of
these for the pieces of one text, packed with gzip.  Of packed bytes the text counts, since zlib's releases differ.  Any
other file is a file of the format itself.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias, cast
from unittest.mock import patch

import click
import pytest

from bridge.broker import broker_znodes, cluster_builder, data_folder
from bridge.broker.catalogue import Catalogue, CatalogueFile, PartitionEntry, TopicEntry
from bridge.broker.config import TopicConfigOverrides
from bridge.broker.listeners import read_listener
from bridge.broker.log.segment_files import OpenFiles, SyncPolicy
from bridge.broker.log.storage import DiskStorage
from bridge.broker.topic_store import BrokerPartition, BrokerTopic
from bridge.client.assignors import ASSIGNORS, StickyAssignor
from bridge.client.assignors.user_data import decode_generation, decode_previous, encode_generation, encode_previous
from bridge.client.kafka_consumer_keys import assignor_names
from bridge.coordinator import records as coordinator_records
from bridge.coordinator.records import StoredGroup, StoredOffsetValue
from bridge.migration import errors as migration_errors
from bridge.migration.control import control_layout, control_pieces
from bridge.migration.control.acl_policy import RunAclPolicy
from bridge.migration.control.control_pieces import pack, unpack
from bridge.migration.control.control_znode import MigrationLock, _parse_lock, format_lock
from bridge.migration.control.journal import JournalEntry, format_journal, parse_journal
from bridge.migration.control.phases import FORWARD, Phase, Strategy
from bridge.migration.dual.connector.migration_assignor import (
    MigrationAssignor,
    consumer_id_of_user_data,
    migration_protocol_name,
)
from bridge.migration.dual.machine.acknowledgement import (
    Acknowledgement,
    acknowledgement_path,
    format_acknowledgement,
    parse_acknowledgement,
)
from bridge.migration.dual.non_acknowledging_members import non_acknowledging_name
from bridge.migration.fences import late_acls
from bridge.migration.fences.fence_acls import FenceAclTemplate, fence_acl_entry
from bridge.migration.fences.fence_login import GENERATED_USER
from bridge.migration.fences.fence_record import FenceRecord, format_fence_record, parse_fence_record
from bridge.migration.fences.rebalance_trigger import TriggerRebalance
from bridge.migration.inspect.group_snapshot import CommittedOffset
from bridge.migration.inspect.migration_status import PLACEHOLDER_ENTRY
from bridge.migration.offsets.offset_copy_steps import COPIED_JOURNAL_ENTRY, RETENTION_FACT
from bridge.migration.offsets.provenance import NO_SOURCE, Provenance, format_provenance, parse_provenance
from bridge.migration.offsets.returned_offsets import (
    EndedMigration,
    ReturnedOffsetsRecord,
    fingerprint,
    format_returned_record,
    parse_returned_record,
)
from bridge.migration.placeholder import placeholder_requests
from bridge.migration.placeholder.placeholder_group import UNUSED_MEMBER_ID
from bridge.migration.placeholder.placeholder_rules import placeholder_subscription
from bridge.migration.plan.decisions import Decisions, ExistingOffsetPolicy, OffsetConvention, OffsetFallback
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_from_bytes, plan_to_bytes
from bridge.migration.plan.plan_json import digest_of_plan
from bridge.migration.plan.start_offsets import plan_partition
from bridge.migration.steps import cut_over_hooks
from bridge.migration.steps.znode_archive import ArchivedNode, ZnodeArchive, archive_lines, parse_archive
from bridge.spark.claims.kafka_claims import commit_metadata
from bridge.spark.claims.query_runs import append_run, format_runs, parse_runs
from bridge.spark.claims.records import BatchClaim, ClaimRecord, format_record, parse_record
from bridge.spark.group_membership import CommitMode
from bridge.spark.group_pipeline import GroupPipeline, format_pipeline, parse_pipeline
from bridge.spark.handoff.checkpoint_files import parse_batch
from bridge.spark.options import UNSET_GROUP
from bridge.spark.source import stream_offset
from bridge.spark.source.stream_offset import INITIAL_OFFSET, BatchOffsets, Stats
from tests.migration import group_snapshots
from tests.reference_pages.migrate_exit_codes_page import EXIT_CODES
from zkconsumer import errors
from zkconsumer.admin.admin_session import TOOLS_GROUP
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.offset_files import ExportedOffset, OffsetFileFormat, format_file, parse_file
from zkconsumer.cli import check as check_command
from zkconsumer.cli import health as health_command
from zkconsumer.cli import log_ends, main
from zkconsumer.cli import sandbox as sandbox_command
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_FAILED, EXIT_PARTIAL
from zkconsumer.cli.main import EXIT_BROKEN_PIPE, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_PRECONDITION
from zkconsumer.config import ConsumerConfig
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.net.api_versions_discovery import CLIENT_SOFTWARE_NAME
from zkconsumer.member.group_assignment import AssignorVariant
from zkconsumer.member.group_view import TopicSubscription
from zkconsumer.member.topic_count import ConsumerThreadId
from zkconsumer.runtime.membership_config import make_consumer_id
from zkconsumer.testing.checker import dump_line, parse_line
from zkconsumer.testing.checker import events as ev
from zkconsumer.testing.checker.policy import Policy
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.testing.sandbox import background_cluster, sandbox_runs
from zkconsumer.testing.sandbox.background_cluster import BackgroundCluster, ClusterProcess
from zkconsumer.testing.sandbox.sandbox_runs import ProcessRecord
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire import group_records
from zkconsumer.wire.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import registration_of
from zkconsumer.zk.requests import OPEN_ACL, Acl, MultiOk, Stat, ZnodeData
from zkconsumer.zk.zk_security import DigestLogin
from zkconsumer.zk.znode_formats import (
    ControlRecord,
    Registration,
    format_control,
    format_offset,
    format_owner,
    format_registration,
    parse_control,
    parse_offset,
    parse_owner,
    parse_registration,
    placeholder_client_id,
)

STORED = Path(__file__).resolve().parents[2] / "data" / "stored"

Data: TypeAlias = "bytes | list[bytes]"
"""Bytes as they are, or the pieces of a packed text."""

AT_MS = 1_416_246_370_000
T0, T1, OTHER = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("views.eu_1-x", 2_147_483_647)
DIGEST = Acl(31, "digest", "us:aGFzaA==")
READ_WORLD = Acl(1, "world", "anyone")
QUERY = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Sample:
    """One value of a format.  ``read_as``: what its bytes give, where that is not the value itself."""

    name: str
    value: Any
    write: Callable[[Any], Data]
    read: Callable[[Any], Any] | None = None
    read_as: Any = None

    @property
    def expected(self) -> Any:
        return self.value if self.read_as is None else self.read_as


def samples(write: Callable[[Any], Data], read: Callable[[Any], Any] | None, values: Mapping[str, Any]) -> list[Sample]:
    return [Sample(name, value, write, read) for name, value in values.items()]


def shown(value: object) -> bytes:
    """A text as it is, and JSON of whatever else a function gives."""
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def constants(values: Mapping[str, Any]) -> list[Sample]:
    """What is written into names and lists, and read by nobody here."""
    return samples(shown, None, values)


def called(calls: Mapping[str, Callable[[], Any]]) -> list[Sample]:
    """The same, of functions that are called when they are compared."""
    return samples(lambda call: shown(call()), None, calls)


# --- znodes of a group ------------------------------------------------------------------------------------------


def registrations() -> list[Sample]:
    kept = {
        "static": Registration("static", {"clicks": 2, "views": 1}, str(AT_MS)),
        "static, no topic": Registration("static", {}, str(AT_MS)),
        "static, characters to escape": Registration("static", {'a/b"\\\n\x7f\u00e9\U0001f600': 1}, "0"),
        "white list": Registration("white_list", {r"clicks|view\w.*": 3}, str(AT_MS)),
        "black list": Registration("black_list", {"test.*": 1}, str(AT_MS)),
    }
    subscription = TopicSubscription("white_list", {"a,b": 2})
    return [
        *samples(format_registration, parse_registration, kept),
        Sample(
            "without a time", Registration("static", {"clicks": 1}), format_registration, parse_registration,
            Registration("static", {"clicks": 1}, "0"),
        ),
        Sample(
            "of a subscription", registration_of(subscription, "7"), format_registration, parse_registration,
            Registration("white_list", {"a,b": 2}, "7"),
        ),
    ]  # fmt: skip


def controls() -> Iterator[Sample]:
    """Every phase of both strategies, as one follows the other; the way back; and what is not confirmed yet."""
    undone = None
    strategies: tuple[Strategy, ...] = ("copy", "dual")
    for strategy in strategies:
        control = control_layout.initial_control("m1", strategy, None)
        planned, switched = control, control
        found = {Phase.PLANNED: control}
        for phase in FORWARD[strategy][1:]:
            before, control = control, control_layout.next_control(control, phase)
            found[phase] = control
            if phase is Phase.SWITCHED:
                switched = control
                unconfirmed = control_layout.next_control(before, phase, is_confirmed=False)
                yield Sample(f"{strategy}: not confirmed", unconfirmed, format_control, parse_control)
        control = switched
        for phase in (Phase.RETURNING, Phase.RETURNED, Phase.UNDONE):
            control = found[phase] = control_layout.next_control(control, phase)
        undone = control
        found[Phase.UNDOING] = control_layout.next_control(planned, Phase.UNDOING)
        for phase, control in found.items():
            yield Sample(f"{strategy}: {phase.name}", control, format_control, parse_control)
    again = control_layout.initial_control("m-2_Z", "dual", undone)
    yield Sample("after another migration", again, format_control, parse_control)
    strange = ControlRecord("\u00e9", 2**63 - 1, "later", "kafka", "other")
    yield Sample("of a later release", strange, format_control, parse_control)


def read_lock(data: bytes) -> MigrationLock:
    return _parse_lock(ZnodeData(data, cast("Stat", SimpleNamespace(ephemeral_owner=5, ctime_ms=1))))


def locks() -> list[Sample]:
    def write(lock: MigrationLock) -> bytes:
        return format_lock(lock.owner, lock.since_ms)

    values = {"run": MigrationLock("alice@host, process 7", AT_MS, 5), "other characters": MigrationLock("é\n", 0, 5)}
    return samples(write, read_lock, values)


def journals() -> list[Sample]:
    copied = JournalEntry(AT_MS, "alice@host, process 7", COPIED_JOURNAL_ENTRY, {RETENTION_FACT: "604800000"})
    placeholder = JournalEntry(AT_MS + 1, "é", PLACEHOLDER_ENTRY, {"until_ms": "9"})
    plain = JournalEntry(0, "", "")
    values = {"entries": (copied, placeholder, plain), "one entry": (plain,), "no entry": ()}
    return samples(
        lambda entries: [format_journal(entries)], lambda pieces: parse_journal(*pieces).entries, values
    )  # fmt: skip


def pieces() -> list[Sample]:
    def write(text: bytes) -> list[bytes]:
        with patch.object(control_pieces, "CHILD_BYTES_MAX", 16):
            return pack(text)

    text = b"what is too long for one znode is packed, and cut into pieces"
    return [*samples(pack, unpack, {"one piece": text, "empty": b""}), Sample("several pieces", text, write, unpack)]


def access_lists() -> list[Sample]:
    def write(lists: Mapping[str, tuple[Acl, ...]]) -> list[bytes]:
        return list(late_acls._pieces(lists))

    def read(found: list[bytes]) -> dict[str, tuple[Acl, ...]]:
        return {path: acl for piece in found for path, acl in late_acls._parse(piece).items()}

    lists = {"/consumers/g1/owners": (DIGEST, READ_WORLD), "/consumers/g1/offsets": OPEN_ACL, "/consumers/g1/ids": ()}
    return samples(write, read, {"lists": lists, "one list": {"/consumers/g1": OPEN_ACL}})


def acknowledgements() -> list[Sample]:
    said = Acknowledgement("m1", 3, "locked", 17, 2)
    return samples(
        format_acknowledgement, parse_acknowledgement,
        {"in a generation": said, "in none": replace(said, phase="armed", generation=-1, behind=0)},
    )  # fmt: skip


def returned_records() -> list[Sample]:
    values = {
        T1: fingerprint(CommittedOffset(90, "x\u00e9\U0001f600")), T0: fingerprint(CommittedOffset(0)),
        OTHER: fingerprint(CommittedOffset(2**63 - 1, "kept")),
    }  # fmt: skip

    def write(record: ReturnedOffsetsRecord) -> bytes:
        return format_returned_record(record.migration_id, record.ended)

    records = {
        "next": ReturnedOffsetsRecord("m1", EndedMigration(OffsetConvention.NEXT, values)),
        "last": ReturnedOffsetsRecord("m-2_Z", EndedMigration(OffsetConvention.LAST, {T0: (1, "")})),
        "nothing": ReturnedOffsetsRecord("m1", EndedMigration()),
    }
    return samples(write, parse_returned_record, records)


def claims() -> list[Sample]:
    claim = BatchClaim(7, 0, 5, 4_294_967_297, AT_MS)
    many = ClaimRecord()
    for batch in range(10):
        many = many.with_claim(replace(claim, batch=batch, first=batch, end=batch + 1))
    later = replace(claim, batch=9, first=5, end=2**63 - 1)
    records = {
        "none": ClaimRecord(),
        "claims": ClaimRecord((claim,)),
        "as many as are kept": many,
        "refused": ClaimRecord((claim,), 8),
        "begun": ClaimRecord((claim,)).with_pending(later),
        "everything": ClaimRecord((claim,), 8).with_pending(later),
    }
    return samples(format_record, lambda data: parse_record(data, "/path"), records)


def runs() -> list[Sample]:
    many: tuple[str, ...] = ()
    for number in range(40):
        many = append_run(many, f"run-{number}")
    return samples(format_runs, parse_runs, {"none": (), "one": ("a1",), "as many as are kept": many})


def group_pipelines() -> list[Sample]:
    one = GroupPipeline("5d8a4c5a-6c1b-4d7f-8b0e-3a2f1c4d5e6f", "clicks", "/data/cp", "host-1", 4711, AT_MS, "a1")
    found = {"one": one, "with other letters": replace(one, name="Größe", checkpoint="hdfs://nn:8020/café")}
    return samples(
        lambda value: format_pipeline(value).encode(), lambda data: parse_pipeline(data.decode(), "/path"), found
    )


def control_acls() -> list[Sample]:
    def listed(acl: tuple[Acl, ...] | None) -> list[tuple[int, str, str]] | None:
        return None if acl is None else [(one.perms, one.scheme, one.id) for one in acl]

    login, none = RunAclPolicy(DigestLogin("us", "secret")), RunAclPolicy()
    logins = {("digest", "us:aGFzaA=="), ("sasl", "them")}
    names = ["plan-0000", "accepted-0000", "acls-0000", "returned-0000", "journal", "run", "leave", "members", "abort"]
    with_mark, without = FenceAclTemplate(fence_acl_entry("m1")), FenceAclTemplate()
    before = (DIGEST, READ_WORLD, Acl(28, "sasl", "them"), fence_acl_entry("m0"))
    found = {f"{name}, with a login": login.acl_of_child(name) for name in names}
    found |= {f"{name}, without": none.acl_of_child(name) for name in names}
    for name in (control_layout.MEMBERS_CHILD, control_layout.ABORT_CHILD):
        found[f"{name}, of the group"] = login.acl_for_group_logins(name, logins)
    for what, form in (("fence with a login", with_mark), ("fence without", without)):
        found[f"{what}, members leave"] = form.acl_for(before, may_delete=True)
        found[f"{what}, nobody is left"] = form.acl_for(before, may_delete=False)
    return constants({name: listed(acl) for name, acl in found.items()})


# --- paths ------------------------------------------------------------------------------------------------------

PATH_CALLS: dict[ModuleType, dict[str, list[Callable[[], Any]]]] = {
    paths: {
        "check_group": [lambda: paths.check_group("g1")],
        "check_topic": [lambda: paths.check_topic("clicks")],
        "check_query": [lambda: paths.check_query(QUERY)],
        "check_client_id": [lambda: paths.check_client_id("")],
        "check_consumer_id": [lambda: paths.check_consumer_id("g1_h\u00f6st-1-a b")],
        "group_root": [lambda: paths.group_root("g1")],
        "ids": [lambda: paths.ids("g1")],
        "registration": [lambda: paths.registration("g1", "g1_host-1-ab")],
        "owners": [lambda: paths.owners("g1")],
        "owners_of_topic": [lambda: paths.owners_of_topic("g1", "clicks")],
        "owner": [lambda: paths.owner("g1", T0), lambda: paths.owner("g.2_a-b", OTHER)],
        "fence_child": [lambda: paths.fence_child("g1", T0)],
        "offsets": [lambda: paths.offsets("g1")],
        "offsets_of_topic": [lambda: paths.offsets_of_topic("g1", "clicks")],
        "offset": [lambda: paths.offset("g1", T0), lambda: paths.offset("g.2_a-b", OTHER)],
        "control": [lambda: paths.control("g1")],
        "control_child": [lambda: paths.control_child("g1", "run")],
        "claims": [lambda: paths.claims("g1")],
        "claims_of_query": [lambda: paths.claims_of_query("g1", QUERY)],
        "claims_of_topic": [lambda: paths.claims_of_topic("g1", QUERY, "clicks")],
        "claims_of_partition": [lambda: paths.claims_of_partition("g1", QUERY, T0)],
        "pipelines": [lambda: paths.pipelines("g1")],
        "running_pipeline": [lambda: paths.running_pipeline("g1")],
        "broker": [lambda: paths.broker(0)],
        "topic": [lambda: paths.topic("clicks")],
        "partition_state": [lambda: paths.partition_state(T0)],
        "parents": [lambda: paths.parents("/a/b/c"), lambda: paths.parents("/a")],
        "topic_of": [lambda: paths.topic_of("/brokers/topics/clicks"), lambda: paths.topic_of("/brokers/topics")],
        "partition_of": [
            lambda: paths.partition_of("/consumers/g1/owners/clicks/7"),
            lambda: paths.partition_of("/consumers/g1/offsets/clicks/7"),
            lambda: paths.partition_of("/brokers/topics/clicks/partitions/7/state"),
            lambda: paths.partition_of("/consumers/g1/ids/clicks/7"),
        ],
        "partition_number": [lambda: paths.partition_number("7"), lambda: paths.partition_number("07")],
    },
    control_layout: {
        "plan_piece_name": [lambda: control_layout.plan_piece_name(0)],
        "acl_piece_name": [lambda: control_layout.acl_piece_name(12)],
        "accepted_piece_name": [lambda: control_layout.accepted_piece_name(9999)],
        "returned_piece_name": [lambda: control_layout.returned_piece_name(1)],
    },
}
NO_PATHS = {"initial_control", "is_group", "next_control", "phase_of", "strategy_of"}
"""What makes and reads the control record, which ``control.json`` has, and a check of a name."""

ROOTS = {
    "consumers": paths.CONSUMERS,
    "broker ids": paths.BROKER_IDS,
    "broker topics": paths.BROKER_TOPICS,
    "cluster id": paths.CLUSTER_ID,
    "control records": paths.CONTROL_GROUPS,
    "claims of Spark": paths.SPARK_CLAIMS,
    "journal": control_layout.JOURNAL_CHILD,
    "run": control_layout.LOCK_CHILD,
    "abort": control_layout.ABORT_CHILD,
    "members": control_layout.MEMBERS_CHILD,
    "members, in paths": paths.CONTROL_MEMBERS,
    "leave": control_layout.LEAVE_CHILD,
    "pieces that hold access lists": control_layout.PRIVATE_PIECE_PREFIXES,
    "all pieces": control_layout.PIECE_PREFIXES,
}


def all_paths() -> list[Sample]:
    calls: dict[str, Callable[[], Any]] = {
        f"{name} {number}": call
        for functions in PATH_CALLS.values()
        for name, some in functions.items()
        for number, call in enumerate(some)
    }
    calls["acknowledgement 0"] = lambda: acknowledgement_path("g1", "g1_host-1-ab")
    return [*called(calls), *constants({f"name: {name}": root for name, root in ROOTS.items()})]


# --- files ------------------------------------------------------------------------------------------------------


def decided_plan() -> MigrationPlan:
    """What ``rich_plan`` leaves at its default: every decision, fences that are taken over, missing rights."""
    decisions = Decisions(
        OffsetConvention.LAST, OffsetFallback.EARLIEST, OffsetFallback.LATEST, ExistingOffsetPolicy.HIGHER,
        offsets_retention_ms=86_400_000,
    )  # fmt: skip
    partitions = (
        group_snapshots.partition(0, 42, kafka=CommittedOffset(50)),
        group_snapshots.partition(1, None),
        group_snapshots.partition(2, 500),
        group_snapshots.partition(3, 42, kafka=CommittedOffset(42, "zkconsumer-migrate:1:m0:1:3")),
    )
    return group_snapshots.plan(
        *partitions,
        strategy="dual",
        decisions=decisions,
        members=(group_snapshots.member(),),
        missing_permissions=("/consumers/g1/owners needs w",),
        control=ControlRecord("m0", 4, "completed", "kafka", "copy"),
        control_version=7,
        fences_migration_id="m0",
        fences_error="its journal is gone",
    )


def plan_file(plan: MigrationPlan) -> list[Sample]:
    """The sentences about the whole group are for people alone, so a release may change them."""

    def numbered(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"sentence {number}, \u00e9" for number in range(len(texts)))

    kept = replace(
        plan, convention_evidence="evidence", refusals=numbered(plan.refusals), warnings=numbered(plan.warnings)
    )
    return [Sample("file", replace(kept, digest=digest_of_plan(kept)), plan_to_bytes, plan_from_bytes)]


def start_reasons() -> list[Sample]:
    """Where a partition starts, and why: an accepted plan is compared with what its decisions give, text by text."""
    first, last = OffsetConvention.NEXT, OffsetConvention.LAST
    earliest, latest = OffsetFallback.EARLIEST, OffsetFallback.LATEST
    stored, none = group_snapshots.partition(0, 42), group_snapshots.partition(0, None)
    empty = group_snapshots.partition(0, None, log=LogRange(7, 7))
    unreadable = group_snapshots.partition(0, None, error="b'x' (1 bytes) is no number")
    older = group_snapshots.partition(0, 42, is_older_than_topic=True)
    both = group_snapshots.partition(0, 42, kafka=CommittedOffset(50))
    ahead = group_snapshots.partition(0, 60, kafka=CommittedOffset(50))
    only_kafka = group_snapshots.partition(0, None, kafka=CommittedOffset(50))
    copied = group_snapshots.partition(0, 42, kafka=CommittedOffset(50, "zkconsumer-migrate:1:m0:1:3"))
    keep = {policy: Decisions(existing=policy) for policy in ExistingOffsetPolicy}
    cases = {
        "copied": (stored, first, Decisions()),
        "last": (stored, last, Decisions()),
        "last of all": (group_snapshots.partition(0, 2**63 - 1), last, Decisions()),
        "convention not known": (stored, None, Decisions()),
        "log not known": (group_snapshots.partition(0, 42, log="nobody leads it"), first, Decisions()),
        "nobody was asked": (group_snapshots.partition(0, 42, log=""), first, Decisions()),
        "decided": (stored, first, Decisions(offsets={T0: 50})),
        "decided, back": (stored, first, Decisions(offsets={T0: 41})),
        "decided, before the log": (stored, first, Decisions(offsets={T0: 9})),
        "decided, behind the log": (stored, first, Decisions(offsets={T0: 101})),
        "empty log": (empty, first, Decisions()),
        "missing": (none, first, Decisions()),
        "missing, earliest": (none, first, Decisions(missing=earliest)),
        "missing, latest": (none, first, Decisions(missing=latest)),
        "unreadable": (unreadable, first, Decisions()),
        "unreadable, earliest": (unreadable, first, Decisions(missing=earliest)),
        "older": (older, first, Decisions()),
        "older, used": (older, first, Decisions(use_older=True)),
        "older, latest": (older, first, Decisions(missing=latest)),
        "before the log": (group_snapshots.partition(0, 9), first, Decisions()),
        "before the log, earliest": (group_snapshots.partition(0, 9), first, Decisions(out_of_range=earliest)),
        "behind the log, latest": (group_snapshots.partition(0, 500), first, Decisions(out_of_range=latest)),
        "returned": (replace(both, is_returned=True), first, Decisions()),
        "returned, back": (replace(ahead, is_returned=True), first, Decisions()),
        "of a migration": (copied, first, Decisions()),
        **{f"both, {policy.value}": (both, first, decisions) for policy, decisions in keep.items()},
        **{f"ahead, {policy.value}": (ahead, first, decisions) for policy, decisions in keep.items()},
        **{f"Kafka alone, {policy.value}": (only_kafka, first, decisions) for policy, decisions in keep.items()},
    }

    def row(case: tuple[Any, Any, Any]) -> list[Any]:
        planned = plan_partition(*case)
        return [planned.target, planned.why, planned.refusal]

    return constants({name: row(case) for name, case in cases.items()})


def archive() -> ZnodeArchive:
    nodes = (
        ArchivedNode("/consumers/g1", b"", OPEN_ACL),
        ArchivedNode("/consumers/g1/ids/g1_a", b'{"version":1}', (DIGEST, READ_WORLD), -(2**63)),
        ArchivedNode("/consumers/g1/offsets/clicks/0", b"\x00\xff42", ()),
    )
    return ZnodeArchive("g1", "m1", AT_MS, nodes)


def archive_file(value: ZnodeArchive) -> list[Sample]:
    return [Sample("file", value, lambda value: "".join(archive_lines(value)).encode(), parse_archive)]


EXPORTED = [ExportedOffset("g1", T1, 90, AT_MS), ExportedOffset("g1", T0, 0), ExportedOffset("g1", OTHER, 2**63 - 1)]


def offset_file(form: OffsetFileFormat, offsets: list[ExportedOffset], store: Any, **more: Any) -> list[Sample]:
    def write(_: object) -> bytes:
        return format_file(form, offsets, store=store, exported_ms=AT_MS, **more).encode()

    def read(data: bytes) -> Any:
        found = parse_file(data)
        assert not found.remarks
        return found.format, found.store, {(each.group, each.tp): each.offset for each in found.offsets}

    has_groups = form is not OffsetFileFormat.CSV or more.get("with_group") or len({one.group for one in offsets}) > 1
    values = {(one.group if has_groups else None, one.tp): one.offset for one in offsets}
    said = store if form is OffsetFileFormat.JSON else None
    return [Sample("file", offsets, write, read, (form, said, values))]


HISTORY: list[ev.HistoryEvent] = [
    ev.LogRangeReported(AT_MS, "clicks", 0, 10, 100, ((11, 11), (20, 30))),
    ev.LogRangeReported(AT_MS, "clicks", 1, 0, 0),
    ev.InitialOffset(AT_MS, "clicks", 0, 42),
    ev.MemberDeclared(AT_MS, "a", "ours", 4711, "g1_host-1-ab", 2),
    ev.MemberDeclared(AT_MS, "b", "scala"),
    ev.MemberDeclared(AT_MS, "tool", "migrator"),
    ev.Joined(AT_MS, "a"),
    ev.Leaving(AT_MS, "a"),
    ev.Left(AT_MS, "a", False),
    ev.Left(AT_MS, "a"),
    ev.Killed(AT_MS, "a"),
    ev.Paused(AT_MS, "a"),
    ev.Continued(AT_MS, "a"),
    ev.Expired(AT_MS, "a"),
    ev.MemberAcquiredPartition(AT_MS, "a", "clicks", 0, 42),
    ev.MemberAcquiredPartition(AT_MS, "a", "clicks", 0),
    ev.MemberReleasedPartition(AT_MS, "a", "clicks", 0),
    ev.DrainTimedOut(AT_MS, "a", "clicks", 0),
    ev.RecordDelivered(AT_MS, "\u00e9", "clicks", 0, 42),
    ev.RecordRangeDelivered(AT_MS, "a", "clicks", 0, 42, 50),
    ev.RecordConsumed(AT_MS, "a", "clicks", 0, 42),
    ev.CommitCalled(AT_MS, "a"),
    ev.OffsetCommitted(AT_MS, "clicks", 0, 43, "a", 7, "kafka"),
    ev.OffsetCommitted(AT_MS, "clicks", 0, 43, store="zookeeper"),
    ev.OffsetCommitted(AT_MS, "clicks", 0, 43),
    ev.OwnerObserved(AT_MS, "clicks", 0, "g1_host-1-ab-0", -5, 7),
    ev.OwnerObserved(AT_MS, "clicks", 0, None),
    ev.OffsetJumpAllowed(AT_MS, "clicks", 0, 0, "smallest", "a"),
    ev.OffsetJumpAllowed(AT_MS, "clicks", 0, 0, "by hand"),
    ev.AssignmentExpected(AT_MS, {"clicks/0": "a-0", "clicks/1": None}),
    ev.GroupSettled(AT_MS),
    ev.FullReadExpected(AT_MS, "clicks", 0),
    ev.FullReadExpected(AT_MS),
    ev.ControlWritten(AT_MS, 5, "switched", "kafka", "m1", "copy", False),
    ev.ControlWritten(AT_MS, 5, "switched", "kafka", "m1", "copy"),
    ev.Fenced(AT_MS, "zookeeper", "clicks", 0),
    ev.Fenced(AT_MS, "kafka"),
    ev.Unfenced(AT_MS, "zookeeper", "clicks", 0),
    ev.Unfenced(AT_MS, "kafka"),
    ev.PlannedKafkaOffset(AT_MS, "clicks", 0, 42),
    ev.StateSnapshot(AT_MS, "before", {"/consumers/g1": "a"}, {"/brokers": "b"}),
    ev.StateSnapshot(AT_MS, "end", {}),
    ev.PolicyChanged(
        AT_MS,
        {
            "ours_to_ours": 1, "ours_to_scala": None, "scala_to_ours": 2, "scala_to_scala": None,
            "observer_delay_ms": 3, "scala_print_delay_ms": 4, "scala_read_window_ms": 5, "zombie_window_ms": 6,
            "in_hand_at_pause": 7, "zookeeper_plus": 8, "acl_fence": 0,
        },
    ),
    ev.HistoryNote(AT_MS, "for the reader"),
]  # fmt: skip


def history() -> list[Sample]:
    def write(events: list[ev.HistoryEvent]) -> bytes:
        return "".join(f"{dump_line(event)}\n" for event in events).encode()

    def read(data: bytes) -> list[ev.HistoryEvent]:
        return [parse_line(line, number) for number, line in enumerate(data.splitlines(), start=1)]

    return [Sample("file", HISTORY, write, read)]


def spark_offsets() -> list[Sample]:
    least = BatchOffsets("g1", QUERY, 0, {}, {}, {})
    most = BatchOffsets(
        "g1", QUERY, 3, {T0: 5, OTHER: 0}, {T0: 9, T1: 7, OTHER: 1}, {T0: 4_294_967_297, OTHER: 8},
        Stats(1, 2, True, 5, True), CommitMode.CLAIM, {"views.eu_1-x": 3, "clicks": 2},
    )  # fmt: skip
    values = {mode.name: replace(most, mode=mode) for mode in CommitMode} | {"least": least, "everything": most}
    return [
        *samples(
            lambda offsets: json.dumps(stream_offset.encode(offsets)).encode(),
            lambda data: stream_offset.decode(json.loads(data), "g1"),
            values,
        ),
        Sample("initial", INITIAL_OFFSET, lambda value: json.dumps(value).encode(), json.loads),
    ]


def catalogue() -> list[Sample]:
    topics = {
        "clicks": TopicEntry(
            bytes(range(16)), (PartitionEntry(0, 3, (0, 1)), PartitionEntry(-1, 0, ())), {"cleanup.policy": "compact"}
        ),
        "views": TopicEntry(bytes(16), ()),
    }
    return [
        Sample("file", Catalogue("cluster-\u00e9", topics, 2_000), write_catalogue, read_catalogue),
    ]


def write_catalogue(value: Catalogue) -> bytes:
    with temporary_folder() as folder:
        CatalogueFile(folder / "catalogue.json").save(value)
        return (folder / "catalogue.json").read_bytes()


def read_catalogue(data: bytes) -> Catalogue | None:
    with temporary_folder() as folder:
        (folder / "catalogue.json").write_bytes(data)
        return CatalogueFile(folder / "catalogue.json").load()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """For a format that is written to files only."""
    with TemporaryDirectory() as name:
        yield Path(name)


def broker_files() -> list[Sample]:
    def names() -> list[str]:
        with temporary_folder() as folder:
            taken, files = data_folder.DataFolder(folder / "broker"), OpenFiles(SyncPolicy.SYSTEM)
            DiskStorage(taken.partition("clicks", bytes(range(16)), 7), files).create(12_345).append(b"x")
            taken.catalogue.write_text("")
            found = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*"))]
            files.close_all()
            taken.unlock()
        return found

    def registered(release: tuple[int, ...]) -> Callable[[], str]:
        listeners = [read_listener("PLAINTEXT://h:1"), read_listener("IN=SASL_SSL://[::1]:2")]
        addresses = {"PLAINTEXT": BrokerAddress(7, "h", 1), "IN": BrokerAddress(7, "::1", 2)}
        return lambda: broker_znodes.broker_znode_data(listeners, addresses, release, AT_MS).decode()

    def topics() -> dict[str, str]:
        partition = BrokerPartition("clicks", 0, 7, 3, (7, 8), cast("Any", None))
        topic = BrokerTopic("clicks", bytes(16), cast("TopicConfigOverrides", None), [partition])
        return {path: data.decode() for path, data in broker_znodes.topic_znodes([topic]).items()}

    return called(
        {
            "folder": names,
            "registration in 0.9": registered((0, 9, 0)),
            "registration from 0.10.2 on": registered((0, 10, 2)),
            "znodes of a topic": topics,
        }
    )


def sandbox_files() -> list[Sample]:
    parts = (
        ClusterProcess("zookeeper-1", "ZooKeeper 3.9.3", "127.0.0.1:1", 10),
        ClusterProcess("broker-1", "Kafka 3.9.1", "127.0.0.1:2", 11),
    )
    cluster = BackgroundCluster("/run", "/root", "127.0.0.1:1/c", "127.0.0.1:2", {"clicks": 2}, parts)

    def read_cluster(data: bytes) -> BackgroundCluster | None:
        with temporary_folder() as folder, patch.dict(os.environ, {"ZKCONSUMER_CACHE": str(folder)}):
            (folder / "cluster.json").write_bytes(data)
            return background_cluster.current()

    def read_process(data: bytes) -> ProcessRecord:
        with temporary_folder() as folder:
            (folder / "processes").mkdir()
            (folder / "processes" / "10").write_bytes(data)
            [record] = sandbox_runs.records_of(folder)
        return record

    process = ProcessRecord(10, "started", "broker", "broker-1", "-Dzkconsumer.run=1")
    return [
        Sample("cluster", cluster, lambda value: json.dumps(asdict(value), indent=1).encode(), read_cluster),
        Sample("process", process, lambda value: json.dumps(asdict(value)).encode(), read_process),
    ]


# --- protocols --------------------------------------------------------------------------------------------------


class SentRequests:
    """A connection that keeps what is sent, as bytes; ``version``: that of the request."""

    def __init__(self, version: int) -> None:
        self._version = version
        self.frame = b""

    def pick(self, api: Any) -> int:
        return self._version

    def request(self, api: Any, version: int, body: Any, timeout_ms: int, client_id: str | None = None) -> Any:
        self.frame = encode_request(api, version, 7, client_id, body)
        return SimpleNamespace(error_code=0, members=[])


def placeholder_frames() -> list[Sample]:
    name, generation = placeholder_client_id("m1"), Generation(3, "id-1", "zkconsumer-m1")

    def sent(version: int, send: Callable[[Any, Any], object]) -> bytes:
        requests = SentRequests(version)
        send(requests, requests)
        return requests.frame

    def join(version: int, **more: Any) -> bytes:
        metadata = placeholder_subscription(["views", "clicks"])
        request = placeholder_requests.PlaceholderJoinRequest("g1", name, metadata, 1_800_000, **more)
        return sent(version, request.send)

    def later(send: Callable[..., object], version: int, whose: object) -> bytes:
        config = placeholder_requests.placeholder_config("g1", name if version else None, 1_800_000)
        return sent(version, lambda connection, ranges: send(connection, ranges, config, whose))

    calls: dict[str, Callable[[], bytes]] = {f"JoinGroup v{number}": partial(join, number) for number in (0, 4, 5, 9)}
    calls["JoinGroup v9, dynamic"] = partial(join, 9, member_id="id-1", is_static=False)
    for number in (0, 5):
        calls[f"SyncGroup v{number}"] = partial(later, placeholder_requests.send_sync_group, number, generation)
        calls[f"LeaveGroup v{number}"] = partial(later, placeholder_requests.send_leave_group, number, "id-1")
    for number in (0, 4):
        calls[f"Heartbeat v{number}"] = partial(later, placeholder_requests.send_heartbeat, number, generation)
    calls["metadata, no topic"] = partial(placeholder_subscription, ())
    return [Sample(name, call, lambda call: call()) for name, call in calls.items()]


def migration_assignor() -> list[Sample]:
    assignor = MigrationAssignor("m1", "g1_host-1-ab")

    def assignment(_: object) -> bytes:
        wanted = Subscription(("clicks",), assignor.subscription_user_data(frozenset()), (T0,))
        return encode_assignment(assignor.assign({"clicks": 2}, {"id-1": wanted})["id-1"])

    shares = Assignment((T0, T1), b"zkconsumer: on the move")
    return [
        *constants({"protocol": assignor.name, "protocol type": PROTOCOL_TYPE}),
        *constants({"name of the protocol": migration_protocol_name("m-2_Z")}),
        Sample(
            "user data", "g1_host-1-ab", lambda name: MigrationAssignor("m1", name).subscription_user_data(frozenset())
            or b"", consumer_id_of_user_data,
        ),
        Sample("assignment", shares, assignment, decode_assignment),
    ]  # fmt: skip


def assignor_data() -> list[Sample]:
    had = (T1, T0, TopicPartition("a", 3))

    def sticky_state(_: object) -> bytes:
        assignor = StickyAssignor()
        assert assignor.subscription_user_data(frozenset()) is None
        assignor.on_assignment(Assignment(had), 17)
        return assignor.subscription_user_data(frozenset()) or b""

    def read(data: bytes) -> Any:
        found = decode_previous(data)
        return sorted(found.partitions), found.generation

    subscription = Subscription(("views", "clicks"), b"data", (T1, T0), 17, "rack-1")
    share = Assignment((T1, OTHER, T0), b"data")
    in_order = Assignment((T1, T0, OTHER), b"data")
    by_version = {
        0: Subscription(("clicks", "views"), b"data"),
        1: Subscription(("clicks", "views"), b"data", (T0, T1)),
        2: Subscription(("clicks", "views"), b"data", (T0, T1), 17),
        3: Subscription(("clicks", "views"), b"data", (T0, T1), 17, "rack-1"),
    }
    return [
        Sample("sticky", had, sticky_state, read, (sorted(had), 17)),
        Sample("sticky, nothing", (), lambda value: encode_previous(value, -1), read, ([], -1)),
        *samples(encode_generation, decode_generation, {"cooperative-sticky": 17, "cooperative-sticky, none": -1}),
        *(
            Sample(
                f"subscription v{version}", subscription,
                partial(encode_subscription, version=version), decode_subscription, expected,
            )
            for version, expected in by_version.items()
        ),
        Sample("subscription, least", Subscription(()), encode_subscription, decode_subscription),
        *(
            Sample(
                f"assignment v{version}", share, partial(encode_assignment, version=version),
                decode_assignment, in_order,
            )
            for version in by_version
        ),
        Sample("assignment, least", Assignment(), encode_assignment, decode_assignment),
    ]  # fmt: skip


def commit_texts() -> list[Sample]:
    values = {"copied": Provenance("m1", 5, 3), "decided": Provenance("m-2_Z", 10**17, NO_SOURCE)}
    claimed = BatchClaim(7, 0, 5, 1, 2)
    return [
        *samples(
            lambda one: format_provenance(one).encode(), lambda data: parse_provenance(data.decode()), values
        ),
        *constants({"claim of a Spark query": commit_metadata(QUERY, claimed)}),
    ]  # fmt: skip


def names() -> list[Sample]:
    """What brokers, other members and their operators know this library by."""

    def made(call: Callable[[], str]) -> Callable[[], str]:
        def make() -> str:
            number = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
            with (
                patch.object(uuid, "uuid4", lambda: number),
                patch.object(socket, "gethostname", lambda: "h\u00f6st x"),
            ):
                return call()

        return make

    def trigger() -> list[str]:
        """The registration that wakes members of a group which came back; it is deleted in the same moment."""
        written: list[str] = []

        def transact(_: object, ops: list[Any]) -> MultiOk:
            written.extend([ops[0].path, ops[0].data.decode()])
            return MultiOk(())

        session = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: AT_MS))
        znode = SimpleNamespace(
            group="g1", migration_id="m1", session=session, require_phase=lambda *_: None, transact=transact
        )
        TriggerRebalance(cast("Any", znode)).do()
        return written

    config = ConsumerConfig({"group.id": "g1", "zookeeper.connect": "z:2181"})
    clock = ManualClock()
    return called(
        {
            "client id, default": lambda: config.client_id,
            "client id of the placeholder": lambda: placeholder_client_id("m1"),
            "client id of Spark's executors": lambda: (
                pytest.importorskip("bridge.spark.decode.range_partition").CLIENT_ID
            ),
            "client id of log-ends": lambda: log_ends.CLIENT_ID,
            "client id of tools": lambda: TOOLS_GROUP,
            "client id of Spark without a group": lambda: UNSET_GROUP,
            "client software": lambda: CLIENT_SOFTWARE_NAME,
            "member id that nobody has": lambda: UNUSED_MEMBER_ID,
            "user of a run without a login": lambda: GENERATED_USER,
            "member that does not acknowledge": lambda: non_acknowledging_name("g1_host-1-ab"),
            "registration that wakes members": trigger,
            "consumer id, given": lambda: make_consumer_id("g1", "c1", clock),
            "consumer id": made(lambda: re.sub(r"-[0-9]+-", "-MS-", make_consumer_id("g1", None, clock))),
            "thread id": lambda: str(ConsumerThreadId("g1_host-1-ab", 10)),
            "member id of the development broker": made(lambda: cluster_builder.new_member_id("c1")),
            "assignors of a coordinator's group": lambda: list(ASSIGNORS),
            "assignors by Java's names": lambda: {
                name: assignor_names(f"org.apache.kafka.clients.consumer.{name}")
                for name in ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")
            },
            "rebalance protocols": lambda: {
                name: sorted(one.value for one in kind().supported_protocols) for name, kind in ASSIGNORS.items()
            },
            "assignors of a ZooKeeper group": lambda: [one.value for one in AssignorVariant],
        }
    )


# --- the development broker's groups ----------------------------------------------------------------------------

OFFSET_VALUE = StoredOffsetValue(43, 5, "zkconsumer-migrate:1:m1:5:3", AT_MS)
MEMBER = group_records.GroupMetadataMember(
    member_id="id-1",
    group_instance_id="i-1",
    client_id="c1",
    client_host="/127.0.0.1",
    rebalance_timeout=300_000,
    session_timeout=45_000,
    subscription=b"\x00\x03",
    assignment=b"\x00\x01",
)
GROUP = StoredGroup("consumer", 17, "range", "id-1", AT_MS, (MEMBER,))


def stored_in(group: StoredGroup, version: int) -> StoredGroup:
    """What a version keeps of a group."""
    members = tuple(
        replace(
            one,
            group_instance_id=one.group_instance_id if version >= 3 else None,
            rebalance_timeout=one.rebalance_timeout if version >= 1 else one.session_timeout,
        )
        for one in group.members
    )
    return replace(
        group, members=members, current_state_timestamp=group.current_state_timestamp if version >= 2 else None
    )


def group_records_samples() -> Iterator[Sample]:
    def key(record: Any) -> bytes:
        return bytes(record.key)

    def value(record: Any) -> bytes:
        return bytes(record.value or b"")

    offset, group = coordinator_records.offset_tombstone("g1", T0), coordinator_records.group_tombstone("g1")
    assert offset.value is None
    assert group.value is None
    expected_offset = coordinator_records.StoredOffsetKey("g1", T0)
    yield Sample("key of an offset", offset, key, coordinator_records.read_key, expected_offset)
    yield Sample("key of a group", group, key, coordinator_records.read_key, coordinator_records.StoredGroupKey("g1"))
    old_key = group_records.OffsetCommitKey("g1", "clicks", 0)
    yield Sample(
        "key of an offset, v0", old_key, lambda one: group_records.write_key(one, 0), group_records.read_key
    )  # fmt: skip
    for version in range(5):
        told = replace(OFFSET_VALUE, leader_epoch=OFFSET_VALUE.leader_epoch if version >= 3 else -1)
        record = coordinator_records.offset_record("g1", T0, OFFSET_VALUE, version)
        yield Sample(f"offset v{version}", record, value, coordinator_records.read_offset_value, told)
        record = coordinator_records.group_record("g1", GROUP, version)
        yield Sample(
            f"group v{version}", record, value, coordinator_records.read_group_value, stored_in(GROUP, version)
        )  # fmt: skip
    expiring = replace(OFFSET_VALUE, leader_epoch=-1, expire_timestamp=AT_MS + 1)
    record = coordinator_records.offset_record("g1", T0, expiring, 3)
    yield Sample("offset that expires", record, value, coordinator_records.read_offset_value, expiring)
    least = StoredOffsetValue(0, -1, "", 0)
    record = coordinator_records.offset_record("g1", T0, least, 3)
    yield Sample("offset, least", record, value, coordinator_records.read_offset_value, least)
    empty = StoredGroup("", 0, None, None, None, ())
    record = coordinator_records.group_record("g1", empty, 3)
    yield Sample("group, least", record, value, coordinator_records.read_group_value, empty)


# --- commands ---------------------------------------------------------------------------------------------------


def commands(command: click.Command = main, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*words, name))


def exit_codes() -> list[Sample]:
    def of_command(command: click.Command) -> list[int]:
        text = re.search(r"(?s)Exit codes?:?(.*)", command.help or "")
        return [] if text is None else sorted({int(one) for one in re.findall(r"(?<![-\w.])[0-9]+(?![-\w])", text[1])})

    kinds = {
        "any error": errors.ZkConsumerError,
        "usage": errors.UsageError,
        "a peer": errors.PeerError,
        "something is away": errors.UnavailableError,
        "the group has moved": errors.MigrationError,
        "a bug": errors.InternalError,
        "a precondition": errors.PreconditionFailed,
        "znodes may not be read": errors.ZkReadNotAuthorized,
        "a stale plan": migration_errors.StalePlanError,
        "verification": migration_errors.VerificationError,
        "partly done": migration_errors.PartiallyDoneError,
        "the run is lost": migration_errors.MigrationLockLostError,
        "a phase may be written": migration_errors.ControlWriteUnknownError,
        "a move is not confirmed": migration_errors.AuthorityMoveUnconfirmedError,
        "the placeholder is lost": migration_errors.PlaceholderLostError,
        "the placeholder took too long": migration_errors.PlaceholderTimeoutError,
        "a program vetoes": migration_errors.HookVetoError,
        "a program fails": migration_errors.HookFailedError,
        "waited too long": migration_errors.WaitTimeoutError,
    }
    codes = {
        "failed": EXIT_FAILED,
        "error": EXIT_ERROR,
        "differs": EXIT_DIFFERS,
        "precondition": EXIT_PRECONDITION,
        "partly": EXIT_PARTIAL,
        "interrupted": EXIT_INTERRUPTED,
        "broken pipe": EXIT_BROKEN_PIPE,
        "verification": migration_errors.EXIT_VERIFICATION,
        "partly migrated": migration_errors.EXIT_PARTIAL,
        "waited": migration_errors.EXIT_WAIT_TIMEOUT,
        "check: findings": check_command.EXIT_FINDINGS,
        "check: unreadable": check_command.EXIT_UNREADABLE,
        "health: unhealthy": health_command.EXIT_UNHEALTHY,
        "health: no answer": health_command.EXIT_NO_ANSWER,
        "sandbox: not running": sandbox_command.EXIT_NOT_RUNNING,
    }
    found: dict[str, Any] = {f"error: {name}": kind.exit_code for name, kind in kinds.items()}
    found |= {f"code: {name}": code for name, code in codes.items()} | {"codes of migrate": list(EXIT_CODES)}
    helped = {f"help: {name}": of_command(command) for name, command in commands()}
    return constants(found | {name: some for name, some in helped.items() if some})


def hook_programs() -> list[Sample]:
    """The names of the programs of ``--hooks-dir``, and what is in their environment."""

    def environment(event: str) -> Callable[[], dict[str, str]]:
        def run() -> dict[str, str]:
            control = ControlRecord("m1", 5, "switched", "kafka", "copy")
            held = SimpleNamespace(control=control, strategy="copy", phase=Phase.SWITCHED)
            context = SimpleNamespace(
                group="g1",
                control_znode=SimpleNamespace(migration_id="m1", require_phase=lambda *_: held),
                plan=SimpleNamespace(targets={T0: 1, T1: 2}),
                placeholder=SimpleNamespace(heartbeat_if_due=lambda: None),
            )
            found: dict[str, str] = {}

            def program(path: Path, environment: Mapping[str, str], *_: object) -> str:
                found.update({"program": path.name, **environment})
                return ""

            with temporary_folder() as folder, patch.object(cut_over_hooks, "run_hook_program", program):
                for name in (f"{event}-10", "other"):
                    (folder / name).touch(0o755)
                cut_over_hooks.RunHooks(cast("Any", context), folder, event).do()
            return found

        return run

    events = {"before": cut_over_hooks.BEFORE_CUT_OVER, "after": cut_over_hooks.AFTER_CUT_OVER}
    return called({name: environment(event) for name, event in events.items()})


# --- the files, and the tests ------------------------------------------------------------------------------------

FORMATS: dict[str, Callable[[], Any]] = {
    "registration.json": registrations,
    "owner.json": lambda: samples(
        format_owner, parse_owner, {"thread": str(ConsumerThreadId("g1_host-1-ab", 10)), "other characters": "\u00e9-0"}
    ),
    "offset.json": lambda: samples(
        format_offset, parse_offset, {"first": 0, "some": 42, "greatest": 2**63 - 1}
    ),
    "control.json": controls,
    "run-lock.json": locks,
    "journal.json": journals,
    "pieces.json": pieces,
    "access-lists.json": access_lists,
    "fence-record.json": lambda: samples(
        format_fence_record, parse_fence_record,
        {"fence": FenceRecord("m1", 2), "longest": FenceRecord("-_Z" * 21 + "a", 10**18 - 1)},
    ),
    "acknowledgement.json": acknowledgements,
    "returned-offsets.json": returned_records,
    "claims.json": claims,
    "query-runs.json": runs,
    "group-pipeline.json": group_pipelines,
    "access-list-policy.json": control_acls,
    "paths.json": all_paths,
    "plan-full.plan": lambda: plan_file(group_snapshots.rich_plan()),
    "plan-decided.plan": lambda: plan_file(decided_plan()),
    "plan-least.plan": lambda: plan_file(group_snapshots.plan()),
    "start-reasons.json": start_reasons,
    "archive.jsonl": lambda: archive_file(archive()),
    "archive-least.jsonl": lambda: archive_file(replace(archive(), nodes=())),
    "offsets.zk": lambda: offset_file(OffsetFileFormat.ZK, EXPORTED, "zookeeper"),
    "offsets.csv": lambda: offset_file(OffsetFileFormat.CSV, EXPORTED, "zookeeper"),
    "offsets-groups.csv": lambda: offset_file(
        OffsetFileFormat.CSV, [*EXPORTED, ExportedOffset("g2", T0, 5)], "zookeeper"
    ),
    "offsets.jsonl": lambda: offset_file(OffsetFileFormat.JSON, EXPORTED, "zookeeper"),
    "offsets-kafka.jsonl": lambda: offset_file(OffsetFileFormat.JSON, EXPORTED[:1], "kafka"),
    "history.jsonl": history,
    "spark-offset.json": spark_offsets,
    "catalogue.broker": catalogue,
    "broker-files.json": broker_files,
    "sandbox.json": sandbox_files,
    "placeholder.json": placeholder_frames,
    "migration-assignor.json": migration_assignor,
    "assignor-data.json": assignor_data,
    "commit-metadata.json": commit_texts,
    "names.json": names,
    "group-records.json": group_records_samples,
    "exit-codes.json": exit_codes,
    "hook-programs.json": hook_programs,
}  # fmt: skip
"""File -> the samples that it holds."""

SAMPLES = [(file, sample) for file, make in FORMATS.items() for sample in make()]
READ = [(file, sample) for file, sample in SAMPLES if sample.read is not None]


def golden(file: str, name: str) -> Data:
    """The bytes of a sample as they are kept."""
    path = STORED / file
    if path.suffix != ".json":
        return path.read_bytes()
    kept = json.loads(path.read_text("utf-8"))[name]
    return [_bytes_of(piece) for piece in kept] if isinstance(kept, list) else _bytes_of(kept)


def _bytes_of(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode()


def plain(data: Data) -> bytes:
    return data if isinstance(data, bytes) else unpack(data)


def names_of(pairs: list[tuple[str, Sample]]) -> list[str]:
    return [f"{file}: {sample.name}" for file, sample in pairs]


@pytest.mark.parametrize(("file", "sample"), SAMPLES, ids=names_of(SAMPLES))
def test_the_bytes_are_those_that_an_earlier_release_wrote(file: str, sample: Sample) -> None:
    kept, written = golden(file, sample.name), sample.write(sample.value)
    assert isinstance(written, list) == isinstance(kept, list)
    assert plain(written) == plain(kept)


@pytest.mark.parametrize(("file", "sample"), READ, ids=names_of(READ))
def test_the_bytes_of_an_earlier_release_give_the_same_values(file: str, sample: Sample) -> None:
    assert sample.read is not None
    assert sample.read(golden(file, sample.name)) == sample.expected


def test_every_file_is_used_and_every_sample_of_it() -> None:
    assert sorted(path.name for path in STORED.iterdir()) == sorted(FORMATS)
    kept = {(path.name, name) for path in STORED.glob("*.json") for name in json.loads(path.read_text("utf-8"))} | {
        (path.name, "file") for path in STORED.iterdir() if path.suffix != ".json"
    }
    assert kept == {(file, sample.name) for file, sample in SAMPLES}


@pytest.mark.parametrize("module", PATH_CALLS, ids=lambda module: module.__name__)
def test_every_public_function_that_makes_a_path_is_called(module: ModuleType) -> None:
    functions = {
        name for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }  # fmt: skip
    assert functions - NO_PATHS == set(PATH_CALLS[module])


def test_every_event_of_a_history_is_kept_and_every_policy() -> None:
    assert {type(event) for event in HISTORY} == set(ev.EVENTS.values())
    [policy] = [event for event in HISTORY if isinstance(event, ev.PolicyChanged)]
    assert set(policy.changes) == {field.name for field in fields(Policy)}


def test_every_error_of_a_migration_has_its_code_kept() -> None:
    kept = {int(code) for name, code in json.loads((STORED / "exit-codes.json").read_text()).items() if "error" in name}
    kinds = [kind for kind in vars(migration_errors).values() if isinstance(kind, type)]
    assert {kind.exit_code for kind in kinds if issubclass(kind, errors.ZkConsumerError)} <= kept


def test_a_checkpoint_of_spark_that_an_earlier_release_wrote_is_read(tmp_path: Path) -> None:
    line = plain(golden("spark-offset.json", "everything"))
    batch = parse_batch(3, b'v1\n{"batchWatermarkMs":0}\n' + line, tmp_path / "3")
    [source] = batch.sources
    assert source.stream_offset is not None
    assert source.stream_offset.batch == 3
