"""OffsetCommit and OffsetFetch: which commits are accepted, and what is read back."""

from __future__ import annotations

from tests.interop.probe.probed_broker import PARTITIONS, Probe
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic

METADATA_BYTES_MAX = 4096


@check()
def a_member_commits_and_reads_it_back(p: Probe) -> None:
    [member] = p.stable()
    assert member.commit(42, metadata="words") == 0
    told = p.fetch()[0]
    assert (told.committed_offset, told.metadata, told.error_code) == (42, "words", 0)


@check()
def the_last_commit_counts_even_when_it_is_lower(p: Probe) -> None:
    assert [p.commit({0: offset}) for offset in (9, 5)] == [{0: 0}, {0: 0}]
    assert p.stored() == 5


@check()
def no_metadata_is_empty_metadata(p: Probe) -> None:
    p.commit({0: 1}, metadata=None)
    assert p.fetch()[0].metadata == p.since("0.10", "", None)


@check()
def metadata_that_is_too_long_is_refused_for_its_partition_alone(p: Probe) -> None:
    partitions = [
        OffsetCommitPartition(partition_index=0, committed_offset=1, committed_metadata="x" * (METADATA_BYTES_MAX + 1)),
        OffsetCommitPartition(partition_index=1, committed_offset=1, committed_metadata="x" * METADATA_BYTES_MAX),
    ]
    body = OffsetCommitRequest(group_id=p.group, topics=[OffsetCommitTopic(name=p.topic, partitions=partitions)])
    [told] = p.ask(OFFSET_COMMIT, body).topics
    assert {each.partition_index: each.error_code for each in told.partitions} == {0: 12, 1: 0}
    assert {each.committed_offset for each in p.fetch([0, 1]).values()} == {-1, 1}


@check()
def a_commit_of_another_generation_is_refused(p: Probe) -> None:
    [member] = p.stable()
    assert [member.commit(1, generation=number) for number in (0, 2)] == [22, 22]


@check()
def a_commit_of_an_unknown_member_is_refused(p: Probe) -> None:
    p.stable()
    assert p.commit({0: 1}, generation=1, member_id="nobody") == {0: 25}


@check()
def a_commit_of_a_member_into_an_unknown_group_is_refused(p: Probe) -> None:
    # 4.0 with version 9 answers that there is no such group (KIP-848).
    assert p.commit({0: 1}, generation=1, member_id="nobody") == {0: p.since("4.0", 69, 22)}


@check(since="4.0")
def below_version_9_an_unknown_group_is_an_illegal_generation(p: Probe) -> None:
    assert p.commit({0: 1}, generation=1, member_id="nobody", version=8) == {0: 22}


@check()
def a_commit_of_no_member_makes_a_group_of_offsets(p: Probe) -> None:
    assert p.commit({0: 3}) == {0: 0}
    assert p.stored() == 3
    p.wait_state(p.since("0.10.2", "Empty", "Dead"))


@check()
def a_commit_of_no_member_into_a_living_group_is_refused(p: Probe) -> None:
    p.stable()
    assert p.commit({0: 1}) == {0: 25}


@check()
def a_commit_of_no_generation_by_a_member_is_refused(p: Probe) -> None:
    [member] = p.stable()
    assert member.commit(1, generation=-1) == 22


@check()
def a_commit_of_a_member_before_the_assignment_is_refused(p: Probe) -> None:
    [member] = p.completing(1)
    assert member.commit(1) == 27


@check()
def a_commit_of_no_member_before_the_assignment_is_refused(p: Probe) -> None:
    p.completing(1)
    assert p.commit({0: 1}) == {0: p.since("2.4", 25, 27)}


@check()
def a_commit_of_the_generation_before_is_taken_during_the_join(p: Probe) -> None:
    _, second = p.preparing()
    assert second.commit(11) == 0
    assert p.stored() == 11


@check()
def a_commit_of_a_former_member_into_an_emptied_group_is_refused(p: Probe) -> None:
    [member] = p.stable()
    member.leave()
    assert member.commit(1) == p.since("0.10.2", 25, 22)


@check()
def a_commit_of_no_member_into_an_emptied_group_is_taken(p: Probe) -> None:
    [member] = p.stable()
    member.commit(1)
    member.leave()
    assert p.commit({0: 2}) == {0: 0}
    assert p.stored() == 2


@check()
def offsets_outlive_the_members(p: Probe) -> None:
    [member] = p.stable()
    member.commit(5)
    member.leave()
    assert p.stored() == 5
    p.stable()
    assert p.stored() == 5


@check()
def a_commit_to_an_unknown_topic_is_refused(p: Probe) -> None:
    assert p.commit({0: 1}, topic="there-is-no-such-topic") == {0: 3}


@check()
def a_commit_to_an_unknown_partition(p: Probe) -> None:
    assert p.commit({0: 1, PARTITIONS + 5: 1}) == {0: 0, PARTITIONS + 5: p.since("2.0", 3, 0)}


@check()
def one_bad_topic_does_not_spoil_the_others(p: Probe) -> None:
    topics = [
        OffsetCommitTopic(name=name, partitions=[OffsetCommitPartition(partition_index=0, committed_offset=8)])
        for name in ("there-is-no-such-topic", p.topic)
    ]
    answer = p.ask(OFFSET_COMMIT, OffsetCommitRequest(group_id=p.group, topics=topics))
    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {topics[0].name: 3, p.topic: 0}
    assert p.stored() == 8


@check()
def nothing_stored_is_minus_one_without_an_error(p: Probe) -> None:
    told = p.fetch([0, 2])
    assert {n: (one.committed_offset, one.metadata, one.error_code) for n, one in told.items()} == {
        0: (-1, "", 0),
        2: (-1, "", 0),
    }


@check()
def a_partition_that_there_is_not_has_nothing_stored(p: Probe) -> None:
    told = p.fetch([PARTITIONS + 5])[PARTITIONS + 5]
    assert (told.committed_offset, told.error_code) == (-1, 0)


@check(since="0.10.2")
def everything_that_is_stored_can_be_asked_for(p: Probe) -> None:
    p.commit({0: 1, 2: 3})
    assert {number: one.committed_offset for number, one in p.fetch(None).items()} == {0: 1, 2: 3}


@check(since="0.10.2")
def everything_of_an_unknown_group_is_nothing(p: Probe) -> None:
    assert p.fetch(None) == {}


@check(since="2.1")
def the_leader_epoch_is_kept(p: Probe) -> None:
    partition = OffsetCommitPartition(partition_index=0, committed_offset=4, committed_leader_epoch=6)
    body = OffsetCommitRequest(group_id=p.group, topics=[OffsetCommitTopic(name=p.topic, partitions=[partition])])
    p.ask(OFFSET_COMMIT, body)
    assert p.fetch()[0].committed_leader_epoch == 6


@check(since="3.0")
def several_groups_are_asked_at_once(p: Probe) -> None:
    other = f"{p.group}-other"
    p.commit({0: 1})
    p.commit({0: 2}, group=other)
    topics = [OffsetFetchTopic(name=p.topic, partition_indexes=[0])]
    groups = [OffsetFetchGroup(group_id=name, topics=topics) for name in (p.group, other)]
    told = p.ask(OFFSET_FETCH, OffsetFetchRequest(groups=groups)).groups
    assert {g.group_id: g.topics[0].partitions[0].committed_offset for g in told} == {p.group: 1, other: 2}


@check(since="2.5")
def stable_offsets_are_those_of_no_open_transaction(p: Probe) -> None:
    p.commit({0: 7})
    topics = [OffsetFetchTopic(name=p.topic, partition_indexes=[0])]
    body = OffsetFetchRequest(group_id=p.group, topics=topics, require_stable=True)
    [told] = p.ask(OFFSET_FETCH, body, 7).topics
    assert (told.partitions[0].committed_offset, told.partitions[0].error_code) == (7, 0)


@check()
def a_group_id_may_hold_any_letters(p: Probe) -> None:
    p.group += " /ключ😀"
    assert p.commit({0: 12}) == {0: 0}
    assert p.stored() == 12
    assert p.member().join().generation_id == 1


@check()
def every_version_of_offset_commit_stores(p: Probe) -> None:
    for version in p.versions(OFFSET_COMMIT, at_least=1):
        assert p.commit({0: 100 + version}, version=version) == {0: 0}, version
        assert p.stored() == 100 + version, version


@check()
def every_version_of_offset_fetch_reads(p: Probe) -> None:
    p.commit({0: 77}, metadata="m")
    for version in p.versions(OFFSET_FETCH, at_least=1):
        told = p.fetch(version=version)[0]
        assert (told.committed_offset, told.metadata) == (77, "m"), version


@check(until="4.0")
def version_0_is_another_store(p: Probe) -> None:
    # ZooKeeper's.  Without one the answer is "not supported" (3.9.1, KRaft).
    missing = {0: 35} if p.server.is_kraft else {0: 0}
    assert p.commit({0: 5}, version=0) == missing
    assert p.stored() == -1
    if not p.server.is_kraft:
        assert p.fetch(version=0)[0].committed_offset == 5


@check(until="4.0")
def version_0_says_that_nothing_is_stored_with_an_error(p: Probe) -> None:
    told = p.fetch([1], version=0)[1]
    assert (told.committed_offset, told.metadata, told.error_code) == (-1, "", 35 if p.server.is_kraft else 3)
