"""Causes outside of the group that stop it.  Pure.

topic-with-zstd             one such topic stops all topics of a Scala consumer
coordinator-group-active    consumers of a coordinator have the same group id
client-newer-than-brokers   the brokers are too old for the client: it owns partitions, and reads nothing
group-migrating             a control znode takes the authority away from ZooKeeper, or cannot be read
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.doctor.progress_findings import stalled_partitions
from zkconsumer.admin.text_format import count_text, duration_text, list_text
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import OffsetNode

ZSTD = "zstd"


def find(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Findings about causes outside of the group."""
    yield from _zstd(facts)
    yield from _coordinator_group_active(facts)
    yield from _client_newer_than_brokers(facts)
    yield from _group_migrating(facts)


def _zstd(facts: GroupFacts) -> Iterator[DoctorFinding]:
    subscribed = {
        topic: name for name, member in sorted(facts.state.members.items()) if member.kind != "zkconsumer"
        for topic in member.threads
    }  # fmt: skip
    found = {topic: codecs[ZSTD] for topic, codecs in sorted(facts.codecs.items()) if ZSTD in codecs}
    hit = [topic for topic in found if topic in subscribed]
    if hit:
        yield DoctorFinding(
            "topic-with-zstd",
            f"{count_text(len(hit), 'topic')} with zstd batches ({list_text(hit)}): no Scala consumer can read them "
            "(the broker refuses to convert, error 76), and one such topic stops all topics of a member, without an "
            "error",
            tuple(f"{found[topic]}; {subscribed[topic]} subscribes to it" for topic in hit[:5]),
            (
                "set compression.type of the producers, or of the topic, to another codec; wait until retention has "
                "deleted the zstd batches, or set the group's offsets after them",
                "members of zkconsumer read zstd",
            ),
        )


def _coordinator_group_active(facts: GroupFacts) -> Iterator[DoctorFinding]:
    group = facts.coordinator_group
    if group is None or not group.has_members or not facts.zookeeper_only_members:
        return
    members = [f"{each.client_id or each.member_id} on {each.host}" for each in group.members]
    yield DoctorFinding(
        "coordinator-group-active",
        "consumers have joined a coordinator group with this id. They and the members in ZooKeeper do not know of each "
        "other: both read everything. Commits of ZooKeeper members to Kafka are rejected (error 25, logged at DEBUG), "
        "and with dual commit their offsets in ZooKeeper stop as well",
        (f"the coordinator reports: {group.state}, {count_text(len(group.members), 'member')}", *members[:5]),
        (
            "stop one of the two, or change its group id; commits work again when the last coordinator member has left",
            f"zkconsumer groups describe {facts.group}",
        ),
    )


def _client_newer_than_brokers(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Brokers of 0.8 and 0.9 close the connection at newer requests or ignore them; the client reports no error."""
    if not facts.brokers_before_0_10:
        return
    stalled = set(stalled_partitions(facts))
    for name, member in facts.state.members.items():
        owned = [tp for tp, owner in facts.state.owners.items() if owner.consumer_id == name and owner.kind == "scala"]
        unread = [tp for tp in owned if tp in stalled and _is_at_its_start(facts.state.offsets.get(tp))]
        with_records = [
            tp for tp in owned if (log := facts.second_snapshot.log_ranges.get(tp)) and log.latest > log.earliest
        ]
        if unread and len(unread) == len(with_records):
            yield DoctorFinding(
                "client-newer-than-brokers",
                f"{name} owns {count_text(len(owned), 'partition')} and has never committed anything beyond the start: "
                "the brokers are of 0.8 or 0.9, and a Scala consumer of a later release registers, owns, even writes "
                "offset 0, but reads nothing from them, without an error",
                (
                    f"brokers without ApiVersions (before 0.10): {list_text(facts.brokers_before_0_10)}",
                    f"unread since {duration_text(facts.now_ms - member.stat.ctime_ms)}: {list_text(unread)}",
                    "0.8 brokers serve clients up to 0.8.2, 0.9 brokers up to 0.9",
                ),
                ("run that member with a client of the brokers' release, or upgrade the brokers to 0.10.2 or later",),
            )


def _is_at_its_start(node: OffsetNode | None) -> bool:
    """Whether only a first position was ever written."""
    return node is None or not node.offset or not node.stat.version


def _group_migrating(facts: GroupFacts) -> Iterator[DoctorFinding]:
    state = facts.state
    if state.control_problem:
        yield DoctorFinding(
            "group-migrating",
            "the control znode of the group cannot be read: members of zkconsumer stop, because they do not know which "
            "store has the authority",
            (f"{paths.control(facts.group)}: {state.control_problem}",),
            (f"get {paths.control(facts.group)} with zkCli.sh; repair or delete it",),
        )
    elif state.control is not None and state.control.authority != "zookeeper" and facts.zookeeper_only_members:
        yield DoctorFinding(
            "group-migrating",
            f"the group's offsets are in {state.control.authority} now, and members are registered in ZooKeeper: "
            "Scala consumers among them read the same records again",
            (
                f"{paths.control(facts.group)}: phase {state.control.phase}, epoch {state.control.epoch}",
                f"registered: {list_text(facts.zookeeper_only_members)}",
            ),
            (f"stop {list_text(facts.zookeeper_only_members)}",),
        )
