"""What tools see and do: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete."""

from __future__ import annotations

from tests.interop.probe.member import SUBSCRIPTION, subscription_to
from tests.interop.probe.probed_broker import Probe, assignment
from tests.interop.probe.registry import check
from zkconsumer.wire.schemas import DESCRIBE_GROUPS, LIST_GROUPS


@check()
def an_unknown_group_is_dead(p: Probe) -> None:
    told = p.described(version=min(5, p.version(DESCRIBE_GROUPS)))
    assert (told.error_code, told.group_state, told.protocol_type, told.members) == (0, "Dead", "", [])


@check()
def a_stable_group_is_described_with_its_members(p: Probe) -> None:
    members = p.stable(2)
    p.wait_state("Stable")
    told = p.described()
    assert (told.error_code, told.protocol_type, told.protocol_data) == (0, "consumer", "range")
    seen = {one.member_id: (one.client_id, one.member_metadata, one.member_assignment) for one in told.members}
    assert seen == {each.member_id: ("probe", SUBSCRIPTION, assignment(n)) for n, each in enumerate(members)}
    assert {one.client_host for one in told.members} == {"/127.0.0.1"}


@check()
def a_group_that_joins_is_described_without_metadata(p: Probe) -> None:
    p.preparing()
    p.wait_state("PreparingRebalance")
    told = p.described()
    assert told.protocol_data == ""
    assert {one.member_metadata for one in told.members} == {b""}


@check()
def the_state_between_join_and_sync_has_its_name(p: Probe) -> None:
    p.completing(1)
    p.wait_state(p.since("1.0", "CompletingRebalance", "AwaitingSync"))


@check(since="0.10.2")
def an_empty_group_is_described(p: Probe) -> None:
    [member] = p.stable()
    member.leave()
    p.wait_state("Empty")
    told = p.described()
    assert (told.protocol_type, told.protocol_data, told.members) == ("consumer", "", [])


@check()
def a_living_group_is_listed_with_its_type(p: Probe) -> None:
    p.stable()
    found = p.listed()
    assert found is not None
    assert found.protocol_type == "consumer"


@check()
def a_group_of_offsets_is_listed_without_a_type(p: Probe) -> None:
    p.commit({0: 1})
    found = p.listed()
    if p.since("0.10.2", True, False):
        assert found is not None
        assert found.protocol_type == ""
    else:
        assert found is None


@check(since="2.6")
def groups_are_listed_by_their_state(p: Probe) -> None:
    p.stable()
    p.until(lambda: p.listed(states_filter=["Stable"]), "it is listed as Stable")
    assert p.listed().group_state == "Stable"
    assert p.listed(states_filter=["Empty", "Dead"]) is None


@check(since="1.1")
def a_group_with_members_is_not_deleted(p: Probe) -> None:
    p.stable()
    assert p.delete() == 68


@check(since="1.1")
def an_unknown_group_cannot_be_deleted(p: Probe) -> None:
    assert p.delete() == 69


@check(since="1.1")
def a_deleted_group_is_gone_with_its_offsets(p: Probe) -> None:
    [member] = p.stable()
    member.commit(5)
    member.leave()
    assert p.delete() == 0
    p.wait_state("Dead")
    assert p.stored() == -1
    assert p.delete() == 69
    assert p.member().join().generation_id == 1


@check(since="1.1")
def a_group_of_offsets_can_be_deleted(p: Probe) -> None:
    p.commit({0: 1})
    assert p.delete() == 0
    assert p.stored() == -1


@check(since="2.4")
def offsets_of_an_empty_group_are_deleted_one_by_one(p: Probe) -> None:
    p.commit({0: 1, 1: 1})
    assert p.delete_offsets([0]) == (0, {0: 0})
    assert {number: one.committed_offset for number, one in p.fetch([0, 1]).items()} == {0: -1, 1: 1}


@check(since="2.4")
def offsets_of_a_topic_that_members_read_are_not_deleted(p: Probe) -> None:
    [member] = p.stable(protocols=[("range", subscription_to(p.topic))])
    member.commit(5)
    assert p.delete_offsets([0]) == (0, {0: 86})
    assert p.stored() == 5


@check(since="2.4")
def offsets_of_a_topic_that_no_member_reads_are_deleted(p: Probe) -> None:
    [member] = p.stable()
    member.commit(5)
    assert p.delete_offsets([0]) == (0, {0: 0})
    assert p.stored() == -1


@check(since="2.4")
def offsets_of_an_unknown_group_cannot_be_deleted(p: Probe) -> None:
    assert p.delete_offsets([0])[0] == 69


@check(since="2.4")
def offsets_of_a_living_group_of_another_type_are_not_deleted(p: Probe) -> None:
    p.stable(protocol_type="connect")
    assert p.delete_offsets([0])[0] == 68


@check()
def every_version_of_describe_groups_is_answered(p: Probe) -> None:
    p.stable()
    p.wait_state("Stable")
    for version in p.versions(DESCRIBE_GROUPS):
        told = p.described(version=version)
        assert (told.group_state, len(told.members)) == ("Stable", 1), version


@check()
def every_version_of_list_groups_is_answered(p: Probe) -> None:
    p.stable()
    for version in p.versions(LIST_GROUPS):
        assert p.listed(version=version) is not None, version
