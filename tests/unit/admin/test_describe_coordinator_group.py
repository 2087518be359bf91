"""``describe_coordinator_group``: whether a modern group of some name is alive."""

from __future__ import annotations

from typing import Any

import pytest

from zkconsumer.errors import KafkaException, RemoteProtocolError
from zkconsumer.kafka.coordinator_groups import CoordinatorGroupMember, describe_coordinator_group
from zkconsumer.kafka.error_codes import NOT_COORDINATOR, BrokerError
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, SupportedVersions, VersionRange
from zkconsumer.wire.schemas import DESCRIBE_GROUPS, LIST_GROUPS
from zkconsumer.wire.schemas.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from zkconsumer.wire.schemas.list_groups import ListedGroup, ListGroupsResponse

RECENT = SupportedVersions({DESCRIBE_GROUPS.key: VersionRange(0, 5), LIST_GROUPS.key: VersionRange(0, 5)})
OLDER = SupportedVersions({DESCRIBE_GROUPS.key: VersionRange(0, 3), LIST_GROUPS.key: VersionRange(0, 3)})
MEMBER = DescribedGroupMember(
    member_id="m-1", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
)


class Answers:
    """A connection to a coordinator with prepared answers; remembers what was asked in which version."""

    def __init__(self, described: list[DescribedGroup], listed: list[ListedGroup] | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self._described = described
        self._listed = listed or []

    def request(self, api: Any, version: int, body: Any, timeout_ms: int) -> Any:
        self.asked.append((api.name, version))
        if api is DESCRIBE_GROUPS:
            return DescribeGroupsResponse(groups=self._described)
        return ListGroupsResponse(groups=self._listed)


def described(state: str, *members: DescribedGroupMember, error: int = 0, group: str = "g") -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group, group_state=state, protocol_type="consumer", protocol_data="range",
        members=list(members),
    )  # fmt: skip


def ask(answers: Answers, ranges: SupportedVersions = RECENT) -> Any:
    connection: Any = answers
    return describe_coordinator_group(connection, ranges, "g", 1_000)


def test_members_are_told() -> None:
    found = ask(Answers([described("Stable", MEMBER)]))
    assert (found.state, found.members, found.has_members) == (
        "Stable",
        (CoordinatorGroupMember("m-1", "c", "/h"),),
        True,
    )


@pytest.mark.parametrize(("state", "has_members"), [("Empty", False), ("PreparingRebalance", True), ("Dead", False)])
def test_a_group_without_members_is_alive_while_they_come(state: str, has_members: bool) -> None:
    assert ask(Answers([described(state)]), OLDER).has_members is has_members


@pytest.mark.parametrize(("state", "has_members"), [("Stable", True), ("Empty", False)])
def test_a_group_of_the_newer_protocol_is_dead_to_the_first_question_and_listed(state: str, has_members: bool) -> None:
    answers = Answers([described("Dead")], [ListedGroup(group_id="g", protocol_type="consumer", group_state=state)])
    found = ask(answers)
    assert (found.state, found.has_members) == (state, has_members)
    assert answers.asked == [("DescribeGroups", 5), ("ListGroups", 4)]


def test_older_brokers_are_not_asked_twice() -> None:
    answers = Answers([described("Dead")])
    assert ask(answers, OLDER).state == "Dead"
    assert answers.asked == [("DescribeGroups", 3)]


def test_a_broker_that_cannot_say_what_it_speaks_is_asked_in_the_oldest_version() -> None:
    answers = Answers([described("Stable", MEMBER)])
    assert ask(answers, ASSUMED_BEFORE_0_10).has_members
    assert answers.asked == [("DescribeGroups", 0)]


def test_errors_are_raised() -> None:
    with pytest.raises(BrokerError, match="16"):
        ask(Answers([described("", error=NOT_COORDINATOR.code)]))
    with pytest.raises(RemoteProtocolError, match="not answered for group g"):
        ask(Answers([described("Stable", group="another")]))
    with pytest.raises(KafkaException):
        ask(Answers([]), SupportedVersions({}))
