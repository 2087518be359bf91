"""What is decided before the coordinator's machine: no socket, no thread, a broker of a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.broker.apis import _IMMEDIATE_HANDLERS
from bridge.broker.emulated_releases import EMULATED_RELEASES
from bridge.coordinator.api_request import AclOperation, ApiRequest, ResponseCallback, ZooKeeperOffset
from bridge.coordinator.group_error_responses import error_response
from bridge.coordinator.kafka_apis import KafkaApis
from bridge.coordinator.release_features import RELEASES, BrokerRelease
from zkconsumer.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, NONE, TOPIC_AUTHORIZATION_FAILED, ErrorCode
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.request_frames import encode_response
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    APIS,
    DELETE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.delete_groups import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from zkconsumer.wire.schemas.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)
from zkconsumer.wire.schemas.offset_delete import (
    OffsetDeletePartition,
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetDeleteTopicResponse,
)
from zkconsumer.wire.schemas.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResponse,
)

COORDINATOR = BrokerAddress(2, "h", 9)


@dataclass
class FakeZooKeeperOffsets:
    """The store of version 0."""

    stored: dict[TopicPartition, int] = field(default_factory=dict)

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        self.stored |= offsets
        done(dict.fromkeys(offsets, 0))

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ZooKeeperOffset]], None],
    ) -> None:
        done({tp: self.stored.get(tp) for tp in partitions})


@dataclass
class FakeBroker:
    """Topics ``t`` and ``u`` of two partitions each; ``asked`` is what the coordinator was asked."""

    answer: Callable[[Any], Any] = lambda body: HeartbeatResponse()
    legacy_offset_store: FakeZooKeeperOffsets | None = None
    release: BrokerRelease = RELEASES["3.9.1"]
    offset_metadata_max_chars: int = 4096
    partitions: int | None = 10
    coordinator: BrokerAddress | None = COORDINATOR
    asked: list[Any] = field(default_factory=list)

    def partition_count(self, topic: str) -> int | None:
        return 2 if topic in ("t", "u", "secret") else None

    def ensure_offsets_topic(self) -> int | None:
        return self.partitions

    def coordinator_address(self, partition: int, listener: str) -> BrokerAddress | None:
        assert listener == "PLAINTEXT"
        return self.coordinator

    def group_error(self, call: ApiRequest, operation: AclOperation, group: str) -> ErrorCode:
        assert call.principal == "ann"
        return GROUP_AUTHORIZATION_FAILED if group.startswith("secret") else NONE

    def topic_error(self, call: ApiRequest, operation: AclOperation, topic: str) -> ErrorCode:
        assert call.principal == "ann"
        return TOPIC_AUTHORIZATION_FAILED if topic.startswith("secret") else NONE

    def submit_to_coordinator(self, call: ApiRequest, body: Any, reply: ResponseCallback) -> None:
        self.asked.append(body)
        reply(self.answer(body))


def ask(broker: FakeBroker, api: Api[Any, Any], version: int, body: Any) -> Any:
    answers: list[Any] = []
    KafkaApis(broker, {}).handle(ApiRequest(api, version, body, "c", "/h", "ann", "PLAINTEXT", answers.append))
    [answer] = answers
    encode_response(api, version, 0, answer)
    return answer


def test_every_api_that_a_release_tells_of_has_one_handler() -> None:
    handlers = KafkaApis(FakeBroker(), {}).handlers
    at_the_connection = {API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key}
    elsewhere = {*_IMMEDIATE_HANDLERS, PRODUCE.key, FETCH.key}
    assert not set(handlers) & elsewhere
    for release in EMULATED_RELEASES.values():
        assert set(release.ranges) <= {*handlers, *elsewhere, *at_the_connection}
    assert {*handlers, *elsewhere, *at_the_connection} == set(APIS)


# --- who coordinates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "key", "key_type", "code"),
    [
        (FakeBroker(), "g", 0, 0),
        (FakeBroker(), "secret", 0, 30),
        (FakeBroker(partitions=None), "g", 0, 15),
        (FakeBroker(coordinator=None), "g", 0, 15),
        (FakeBroker(), "tx", 1, 53),
        (FakeBroker(), "share", 2, 42),
    ],
)
def test_a_coordinator_is_found_or_not_in_every_version(broker: FakeBroker, key: str, key_type: int, code: int) -> None:
    for version in range(FIND_COORDINATOR.highest + 1):
        if version == 0 and key_type:
            continue
        body = FindCoordinatorRequest(key_type=key_type)
        if version < 4:
            body.key = key
        else:
            body.coordinator_keys = [key, key]
        answer = ask(broker, FIND_COORDINATOR, version, body)
        rows = [answer] if version < 4 else answer.coordinators
        expected = (code, -1, "", -1) if code else (0, 2, "h", 9)
        assert {(row.error_code, row.node_id, row.host, row.port) for row in rows} == {expected}
        assert len(rows) == (1 if version < 4 else 2)


# --- groups -------------------------------------------------------------------------------------------------------


def test_the_coordinator_is_not_asked_for_a_group_that_the_asker_may_not_use() -> None:
    broker = FakeBroker()
    body = HeartbeatRequest(group_id="secret", generation_id=1, member_id="m")
    assert ask(broker, HEARTBEAT, 1, body).error_code == 30
    assert broker.asked == []
    assert ask(broker, HEARTBEAT, 1, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")).error_code == 0


def test_lists_leave_out_what_the_asker_may_not_see() -> None:
    listed = [ListedGroup(group_id=name, protocol_type="consumer") for name in ("g", "secret")]
    broker = FakeBroker(lambda body: ListGroupsResponse(groups=listed))
    assert [group.group_id for group in ask(broker, LIST_GROUPS, 1, ListGroupsRequest()).groups] == ["g"]


def test_groups_are_deleted_one_by_one() -> None:
    def answer(body: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeletedGroup(group_id=name) for name in body.groups_names])

    rows = ask(FakeBroker(answer), DELETE_GROUPS, 1, DeleteGroupsRequest(groups_names=["secret", "g"])).results
    assert {(row.group_id, row.error_code) for row in rows} == {("g", 0), ("secret", 30)}


def bodies(api: Api[Any, Any]) -> Any:
    """A question of the API about group ``g`` and partition ``t/0``."""
    match api.key:
        case OFFSET_COMMIT.key:
            row = OffsetCommitPartition(partition_index=0, committed_offset=1)
            return OffsetCommitRequest(group_id="g", topics=[OffsetCommitTopic(name="t", partitions=[row])])
        case OFFSET_FETCH.key:
            return OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(name="t", partition_indexes=[0])])
        case DELETE_GROUPS.key:
            return DeleteGroupsRequest(groups_names=["g"])
    fields = {"group_id": "g", "member_id": "m", "groups": ["g"], "generation_id": 1, "session_timeout_ms": 1,
              "protocol_type": "", "protocols": [], "topics": []}  # fmt: skip
    names = api.request.__dataclass_fields__
    return api.request(**{name: value for name, value in fields.items() if name in names})


@pytest.mark.parametrize(
    "api", [JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, LIST_GROUPS, OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE]
)  # fmt: skip
def test_a_refusal_can_be_written_in_every_version(api: Api[Any, Any]) -> None:
    for version in range(api.highest + 1):
        body = bodies(api)
        if api is OFFSET_FETCH and version >= 8:
            body = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=None)])
        answer = error_response(api, version, body, GROUP_AUTHORIZATION_FAILED)
        frame = encode_response(api, version, 0, answer)
        assert b"\x00\x1e" in frame


# --- offsets ------------------------------------------------------------------------------------------------------


def commit(*partitions: tuple[str, int], group: str = "g") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitTopic(name=topic, partitions=[OffsetCommitPartition(partition_index=index, committed_offset=7)])
            for topic, index in partitions
        ],
    )


def committed(code: int) -> Callable[[Any], Any]:
    return lambda body: OffsetCommitResponse(
        topics=[
            OffsetCommitTopicResponse(
                name=topic.name,
                partitions=[
                    OffsetCommitPartitionResponse(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def codes(answer: Any) -> list[tuple[str, int, int]]:
    return [(topic.name, row.partition_index, row.error_code) for topic in answer.topics for row in topic.partitions]


MIXED = (("secret", 0), ("t", 0), ("no-such", 0), ("u", 5), ("u", 1))


def test_what_is_wrong_with_a_commit_is_said_in_the_place_of_each_partition() -> None:
    broker = FakeBroker(committed(22))
    assert codes(ask(broker, OFFSET_COMMIT, 3, commit(*MIXED))) == [
        ("secret", 0, 29), ("t", 0, 22), ("no-such", 0, 3), ("u", 5, 3), ("u", 1, 22),
    ]  # fmt: skip
    assert [topic.name for topic in broker.asked[0].topics] == ["t", "u"]


def test_partitions_are_looked_at_from_2_0_on() -> None:
    broker = FakeBroker(committed(0), release=RELEASES["1.1.1"])
    assert codes(ask(broker, OFFSET_COMMIT, 3, commit(("u", 5), ("no-such", 0)))) == [("u", 5, 0), ("no-such", 0, 3)]


def test_when_nothing_is_left_the_coordinator_is_not_asked() -> None:
    broker = FakeBroker(committed(0))
    assert codes(ask(broker, OFFSET_COMMIT, 3, commit(("secret", 0)))) == [("secret", 0, 29)]
    assert codes(ask(broker, OFFSET_COMMIT, 3, commit(("secret", 0), group="secret"))) == [("secret", 0, 30)]
    assert broker.asked == []


def test_version_0_commits_to_zookeeper_and_never_to_the_coordinator() -> None:
    store = FakeZooKeeperOffsets()
    broker = FakeBroker(legacy_offset_store=store, release=RELEASES["1.1.1"])
    assert codes(ask(broker, OFFSET_COMMIT, 0, commit(*MIXED))) == [
        ("secret", 0, 29), ("t", 0, 0), ("no-such", 0, 3), ("u", 5, 3), ("u", 1, 0),
    ]  # fmt: skip
    assert store.stored == {TopicPartition("t", 0): 7, TopicPartition("u", 1): 7}
    body = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchTopic(name=name, partition_indexes=[0, 1]) for name in ("secret", "t")]
    )
    rows = ask(broker, OFFSET_FETCH, 0, body).topics
    assert [(row.committed_offset, row.error_code) for topic in rows for row in topic.partitions] == [
        (-1, 29), (-1, 29), (7, 0), (-1, 3),
    ]  # fmt: skip
    assert broker.asked == []


def test_without_zookeeper_version_0_is_not_supported() -> None:
    assert codes(ask(FakeBroker(), OFFSET_COMMIT, 0, commit(("t", 0)))) == [("t", 0, 35)]
    answer = ask(FakeBroker(), OFFSET_FETCH, 0, bodies(OFFSET_FETCH))
    assert [row.error_code for row in answer.topics[0].partitions] == [35]


def test_offsets_of_topics_that_the_asker_may_not_see_are_not_told() -> None:
    def topics() -> list[OffsetFetchTopicResponse]:
        return [
            OffsetFetchTopicResponse(
                name=name, partitions=[OffsetFetchPartitionResponse(partition_index=0, committed_offset=5)]
            )
            for name in ("t", "secret")
        ]

    one = ask(FakeBroker(lambda body: OffsetFetchResponse(topics=topics())), OFFSET_FETCH, 5, bodies(OFFSET_FETCH))
    rows = [OffsetFetchGroupResponse(group_id="g", topics=topics())]
    asked = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id="g", topics=None)])
    many = ask(FakeBroker(lambda body: OffsetFetchResponse(groups=rows)), OFFSET_FETCH, 8, asked)
    for told in (one.topics, many.groups[0].topics):
        assert [(t.name, t.partitions[0].committed_offset, t.partitions[0].error_code) for t in told] == [
            ("t", 5, 0), ("secret", -1, 29),
        ]  # fmt: skip


def test_version_0_refuses_metadata_that_is_too_long() -> None:
    store = FakeZooKeeperOffsets()
    broker = FakeBroker(legacy_offset_store=store, offset_metadata_max_chars=3)
    body = commit(("t", 0), ("t", 1))
    body.topics[1].partitions[0].committed_metadata = "long"
    assert codes(ask(broker, OFFSET_COMMIT, 0, body)) == [("t", 0, 0), ("t", 1, 12)]
    assert store.stored == {TopicPartition("t", 0): 7}


def test_a_release_that_does_not_look_at_topics_stores_commits_of_any() -> None:
    broker = FakeBroker(committed(0), release=RELEASES["0.8.2.2"])
    assert codes(ask(broker, OFFSET_COMMIT, 1, commit(("no-such", 0), ("t", 9)))) == [("no-such", 0, 0), ("t", 9, 0)]
    rows = [
        OffsetFetchTopicResponse(
            name="t", partitions=[OffsetFetchPartitionResponse(partition_index=at, committed_offset=1) for at in (0, 9)]
        )
    ]
    asked = OffsetFetchRequest(group_id="g", topics=[OffsetFetchTopic(name="t", partition_indexes=[0, 9])])
    for release, expected in (("0.8.2.2", [0, 3]), ("1.1.1", [0, 0])):
        broker = FakeBroker(lambda body: OffsetFetchResponse(topics=rows), release=RELEASES[release])
        [topic] = ask(broker, OFFSET_FETCH, 1, asked).topics
        assert [row.error_code for row in topic.partitions] == expected


def test_each_group_of_an_offset_fetch_has_its_own_error() -> None:
    def answer(body: OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[OffsetFetchGroupResponse(group_id=g.group_id, topics=[]) for g in body.groups]
        )

    for names in (["g", "secret", "h"], ["secret", "secret-too"]):
        asked = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=name, topics=None) for name in names])
        broker = FakeBroker(answer)
        told = [(group.group_id, group.error_code) for group in ask(broker, OFFSET_FETCH, 8, asked).groups]
        assert told == [(name, 30 if name.startswith("secret") else 0) for name in names]
        allowed = [name for name in names if not name.startswith("secret")]
        assert [[group.group_id for group in body.groups] for body in broker.asked] == ([allowed] if allowed else [])


def test_offsets_are_deleted_where_there_is_something_to_delete() -> None:
    def answer(body: OffsetDeleteRequest) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteTopicResponse(
                    name=topic.name,
                    partitions=[
                        OffsetDeletePartitionResponse(partition_index=p.partition_index) for p in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    body = OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteTopic(name=name, partitions=[OffsetDeletePartition(partition_index=at) for at in (0, 9)])
            for name in ("t", "secret")
        ],
    )
    assert sorted(codes(ask(FakeBroker(answer), OFFSET_DELETE, 0, body))) == [
        ("secret", 0, 29), ("secret", 9, 29), ("t", 0, 0), ("t", 9, 3),
    ]  # fmt: skip
    unknown = FakeBroker(lambda body: OffsetDeleteResponse(error_code=69, topics=[]))
    assert ask(unknown, OFFSET_DELETE, 0, body).topics == []
