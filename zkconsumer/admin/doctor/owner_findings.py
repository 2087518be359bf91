"""Owner nodes without a member, partitions without an owner, members without their assignment.  Pure.

owner-without-member         an owner node of a consumer that is not registered
owner-of-other-session       the owner node belongs to an older session than the registration of the same name
owner-persistent             a persistent owner node: a fence, or made by hand; no member can acquire that partition
owner-foreign                the text is not a thread of the member that it names, or the node was overwritten
owner-of-missing-partition   an owner node of a partition that does not exist
partitions-unowned           without an owner in both snapshots
member-idle                  registered for longer than the Scala consumer's four retries, and without its assignment
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.text_format import count_text, duration_text, list_text
from zkconsumer.member.topic_count import make_thread_id
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import OUR_OWNER_VERSION

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import PartitionOwner


def find(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Findings about owner nodes."""
    yield from _unregistered_owners(facts)
    yield from _persistent(facts)
    yield from _foreign(facts)
    yield from _unowned(facts)
    yield from _idle(facts)


def owned_by_registered_threads(facts: GroupFacts) -> tuple[int, int]:
    """Partitions of subscribed topics, and how many a registered thread owns: the rule of VerifyConsumerRebalance."""
    wanted = _subscribed(facts)
    return len(wanted), sum(
        tp in facts.registered_owners and _is_thread(facts, facts.state.owners[tp]) for tp in wanted
    )


def _subscribed(facts: GroupFacts) -> list[TopicPartition]:
    """Every partition of every topic that a registered member subscribes to."""
    state = facts.state
    topics = {topic for member in state.members.values() for topic in member.threads}
    return [TopicPartition(t, p) for t in sorted(topics) if t in state.topics for p in state.topics[t].partitions]


def _is_thread(facts: GroupFacts, owner: PartitionOwner) -> bool:
    member = facts.state.members.get(owner.consumer_id)
    if member is None:
        return False
    threads = member.threads.get(owner.tp.topic, 0)
    if not threads and member.registration is not None and member.registration.pattern != "static":
        # Another member may include internal topics (exclude.internal.topics), and a filter is evaluated before the
        # topics.
        threads = next(iter(member.registration.subscription.values()), 0)
    _, _, number = owner.thread_id.rpartition("-")
    thread_ids = {make_thread_id(owner.consumer_id, index) for index in range(threads)}
    return number.isascii() and number.isdigit() and owner.thread_id in thread_ids


def _unregistered_owners(facts: GroupFacts) -> Iterator[DoctorFinding]:
    state = facts.state
    strays = [one for one in state.owners.values() if one.kind != "persistent" and one.consumer_id not in state.members]
    if strays:
        yield DoctorFinding(
            "owner-without-member",
            f"{count_text(len(strays), 'partition')} owned by consumers that are not registered: their session has not "
            "ended yet, or the registration of a running process was deleted. No other member can acquire them before "
            "it ends",
            tuple(_node(facts, one) for one in strays[:5]) + _more(strays),
            (
                "wait one session timeout (usually 30 s) and run this again",
                f"if it stays: stop the process with session 0x{strays[0].stat.ephemeral_owner:x}",
            ),
        )
    others = [
        one for one in state.owners.values()
        if one.kind != "persistent" and one.consumer_id in state.members
        and state.members[one.consumer_id].session_id not in (0, one.stat.ephemeral_owner)
    ]  # fmt: skip
    if others:
        held = state.members[others[0].consumer_id].session_id
        yield DoctorFinding(
            "owner-of-other-session",
            f"{count_text(len(others), 'owner node')} made by another session than the registration of the same "
            "name: a Scala consumer takes the node for its own and loses it when that session ends",
            (*(_node(facts, one) for one in others[:5]), f"the registration is of session 0x{held:x}", *_more(others)),
            ("wait one session timeout and run this again", "if it stays: two processes have the same consumer.id"),
        )


def _persistent(facts: GroupFacts) -> Iterator[DoctorFinding]:
    found = [one for one in facts.state.owners.values() if one.kind == "persistent"]
    if not found:
        return
    fences = [one for one in found if one.stat.num_children]
    if fences and facts.state.control is not None:
        description = (
            f"{count_text(len(fences), 'partition')} fenced by a migration: Scala consumers cannot acquire them"
        )
        step = f"zkconsumer migrate status {facts.group}"
    else:
        description = (
            f"{count_text(len(found), 'owner node')} persistent: they do not end with a session, so no member can ever "
            "acquire these partitions"
        )
        path = paths.owner(facts.group, found[0].tp)
        step = f"make sure that no operator made the fence on purpose; then delete {path} with zkCli.sh"
    yield DoctorFinding(
        "owner-persistent", description, tuple(_node(facts, one) for one in found[:5]) + _more(found), (step,)
    )


def _foreign(facts: GroupFacts) -> Iterator[DoctorFinding]:
    state = facts.state
    odd = [
        one for one in state.owners.values()
        if one.stat.version > OUR_OWNER_VERSION or (one.kind != "persistent" and one.consumer_id in state.members
                                     and state.members[one.consumer_id].threads and not _is_thread(facts, one))
    ]  # fmt: skip
    if odd:
        yield DoctorFinding(
            "owner-foreign",
            f"{count_text(len(odd), 'owner node')} that no Kafka consumer writes: the text is not a "
            "thread of the member that it names, or the node was overwritten",
            tuple(_node(facts, one) for one in odd[:5]) + _more(odd),
            ("find the program that writes there; it does not assign partitions like Kafka's consumers",),
        )
    gone = [
        one for one in state.owners.values()
        if one.tp.topic in state.topics and one.tp.partition not in state.topics[one.tp.topic].partitions
        and not state.topics[one.tp.topic].problem
    ]  # fmt: skip
    if gone:
        yield DoctorFinding(
            "owner-of-missing-partition",
            f"{count_text(len(gone), 'owner node')} of partitions that do not exist: the topic was deleted and created "
            "again",
            tuple(_node(facts, one) for one in gone[:5]) + _more(gone),
            ("restart the owners",),
        )


def _unowned(facts: GroupFacts) -> Iterator[DoctorFinding]:
    before = set(facts.first_snapshot.state.owners)
    missing = [tp for tp in _subscribed(facts) if tp not in facts.state.owners and tp not in before]
    if not missing:
        return
    evidence = [f"{count_text(len(missing), 'partition')}: {list_text(missing)}"]
    share = facts.assignment
    if share is not None:
        falls_to = sorted({str(share.owners[tp]) for tp in missing if tp in share.owners})
        if falls_to:
            setting = (
                share.variant.value if facts.registered_owners else f"{share.variant.value}, if that is their setting"
            )
            evidence.append(f"by {setting} they are assigned to {list_text(falls_to)}")
    if not facts.interval_ms:
        evidence.append("one read only: in the middle of a rebalance this is normal")
    yield DoctorFinding(
        "partitions-unowned",
        "some partitions of subscribed topics have no owner, so no member reads them",
        tuple(evidence),
        ("see member-idle below, if it is listed", f"zkconsumer groups describe {facts.group}"),
    )


def _idle(facts: GroupFacts) -> Iterator[DoctorFinding]:
    share = facts.assignment
    if share is None or not facts.is_stable:
        return
    state = facts.state
    for name in facts.zookeeper_only_members:
        member = state.members[name]
        computed = share.of_member(name)
        lacking = [tp for tp in computed if tp not in state.owners or state.owners[tp].consumer_id != name]
        since_ms = facts.now_ms - member.stat.ctime_ms
        if not lacking or len(lacking) < len(computed):
            continue
        holders = sorted({state.owners[tp].thread for tp in lacking if tp in state.owners})
        yield DoctorFinding(
            "member-idle",
            f"{name} is registered for {duration_text(since_ms)} and owns nothing of its assignment: a Scala consumer "
            "gives up after rebalance.max.retries times rebalance.backoff.ms (8 s), and waits for the next change",
            (
                f"its assignment by {share.variant.value}: {list_text(lacking)}",
                f"owned by {list_text(holders)}" if holders else "without an owner",
                f"{paths.registration(facts.group, name)} since {duration_text(since_ms)}, session "
                f"0x{member.session_id:x}",
            ),
            (
                f"restart it{f' on {member.host}' if member.host else ''}: it only reacts to a change under "
                f"{paths.ids(facts.group)}",
                "if its session timeout is longer than 8 s, raise rebalance.max.retries",
            ),
        )


def _node(facts: GroupFacts, one: PartitionOwner) -> str:
    return (
        f"{paths.owner(facts.group, one.tp)} = {one.thread[:200]!r}, session 0x{one.stat.ephemeral_owner:x}, "
        f"created {duration_text(facts.now_ms - one.stat.ctime_ms)} ago, version {one.stat.version}"
    )


def _more(found: list[PartitionOwner]) -> tuple[str, ...]:
    return (f"and {len(found) - 5} more",) if len(found) > 5 else ()
