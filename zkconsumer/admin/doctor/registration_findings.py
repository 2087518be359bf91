"""Registrations that stop or mislead other members.  Pure.

registration-invalid             no release can use it: every Scala consumer fails in every rebalance
registration-of-pykafka          a BalancedConsumer of pykafka, which reads partitions that other members own
registration-partly-unreadable   members of some releases fail, the others do not
registration-not-evaluable       members of zkconsumer cannot evaluate it, so they leave the group
registration-persistent          not an ephemeral node: it does not end with a session
registration-double-escaped      written by 1.0.1 or later: its filter matches nothing that has a backslash
subscription-without-topics      it selects no existing topic
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zkconsumer.admin.doctor.facts import DoctorFinding, GroupFacts
from zkconsumer.admin.text_format import duration_text, list_text
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import incompatible_releases, is_pykafka_registration

if TYPE_CHECKING:
    from zkconsumer.admin.zookeeper_group import RegisteredMember

DATA_SHOWN_MAX = 200
"""Bytes of a registration that are shown."""


def find(facts: GroupFacts) -> Iterator[DoctorFinding]:
    """Findings about registrations."""
    for name, member in facts.state.members.items():
        yield from _invalid(facts, name, member)
        if not member.session_id:
            yield DoctorFinding(
                "registration-persistent",
                f"the registration of {name} is a persistent node: it does not end with a session, and no consumer "
                "makes such a node. All members assign partitions to it, which no member reads",
                _evidence(facts, name, member),
                (_removal_step(facts, name, member),),
            )
        if member.registration is not None and not member.problem:
            yield from _partly_unreadable(facts, name, member)
            yield from _double_escaped(facts, name, member)
            yield from _without_topics(facts, name, member)


def _invalid(facts: GroupFacts, name: str, member: RegisteredMember) -> Iterator[DoctorFinding]:
    if not member.problem:
        return
    if "cannot be evaluated here" in member.problem:
        yield DoctorFinding(
            "registration-not-evaluable",
            f"the filter of {name} may be valid for Java, but members of zkconsumer cannot evaluate it exactly: they "
            "leave the group while it exists. Scala consumers are not affected",
            (member.problem, *_evidence(facts, name, member)),
            ("write the filter with simpler elements: literals, '.', '|', groups, '*', '+', '?' and simple classes",),
        )
        return
    if is_pykafka_registration(name, member.data):
        yield DoctorFinding(
            "registration-of-pykafka",
            f"{name} is a BalancedConsumer of pykafka: it sees only members of pykafka, and reads its topic no matter "
            "which members own the partitions. Beside members of zkconsumer, records are read twice; a Scala consumer "
            "fails in every rebalance until this node is deleted",
            (member.problem, *_evidence(facts, name, member)),
            ("before a member of another client starts, stop all members of pykafka: their offsets stay in Kafka",
             _removal_step(facts, name, member)),
        )  # fmt: skip
        return
    yield DoctorFinding(
        "registration-invalid",
        f"no release can use the registration of {name}: every Scala consumer of the group gives up its "
        "partitions and fails in every rebalance until this node is deleted. Members of zkconsumer ignore it",
        (member.problem, *_evidence(facts, name, member)),
        (_removal_step(facts, name, member),),
    )


def _partly_unreadable(facts: GroupFacts, name: str, member: RegisteredMember) -> Iterator[DoctorFinding]:
    for releases, why in incompatible_releases(member.data).items():
        yield DoctorFinding(
            "registration-partly-unreadable",
            f"Scala consumers of release {releases} cannot read the registration of {name}: if there are any in the "
            "group, they give up their partitions and fail in every rebalance until it is deleted",
            (why, *_evidence(facts, name, member)),
            (_removal_step(facts, name, member), "upgrade or repair the client that wrote it"),
        )


def _double_escaped(facts: GroupFacts, name: str, member: RegisteredMember) -> Iterator[DoctorFinding]:
    assert member.registration is not None, "it was read"
    if member.registration.pattern == "static":
        return
    pattern = next(iter(member.registration.subscription), "")
    if "\\\\" in pattern:
        yield DoctorFinding(
            "registration-double-escaped",
            f"the filter of {name} was escaped twice, as 1.0.1, 1.0.2 and 1.1 do: members read {pattern!r}, which "
            "matches no topic where the program meant one backslash",
            _evidence(facts, name, member),
            (
                "write the filter without a backslash: '[.]' for '\\.'",
                "members of zkconsumer escape once, as 0.8.2 does",
            ),
        )


def _without_topics(facts: GroupFacts, name: str, member: RegisteredMember) -> Iterator[DoctorFinding]:
    assert member.registration is not None, "it was read"
    missing = [topic for topic in member.registration.subscription if topic not in facts.state.topics]
    is_static = member.registration.pattern == "static"
    if is_static and missing:
        description = f"{name} subscribes to topics that do not exist: {list_text(missing)}"
    elif not is_static and not member.threads:
        description = f"the filter of {name} matches no existing topic: {list_text(member.registration.subscription)}"
    else:
        return
    yield DoctorFinding(
        "subscription-without-topics", description, _evidence(facts, name, member),
        ("correct the name, create the topic, or check the chroot: ls /brokers/topics",),
    )  # fmt: skip


def _removal_step(facts: GroupFacts, name: str, member: RegisteredMember) -> str:
    """The step that deletes the registration; for a persistent node there is no process that could be stopped."""
    if not member.session_id:
        return f"delete {paths.registration(facts.group, name)} with zkCli.sh"
    session = f"that has session 0x{member.session_id:x} (cons of the ZooKeeper servers names its address)"
    where = f"on {member.host}" if member.host else session
    return f"stop the process {where}; its registration is {paths.registration(facts.group, name)}"


def _evidence(facts: GroupFacts, name: str, member: RegisteredMember) -> tuple[str, ...]:
    data = member.data[:DATA_SHOWN_MAX]
    more = "…" if len(member.data) > DATA_SHOWN_MAX else ""
    return (
        f"{paths.registration(facts.group, name)} = {data.decode('utf-8', 'backslashreplace')}{more}",
        f"{f'session 0x{member.session_id:x}' if member.session_id else 'no session'}, "
        f"registered {duration_text(facts.now_ms - member.stat.ctime_ms)} ago",
    )
