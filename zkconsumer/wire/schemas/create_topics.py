"""CreateTopics (19): create topics; only the controller accepts it (Kafka 0.10.1, KIP-4).

From version 5 (2.4, KIP-525) the answer contains the settings of the topic, from version 7 (2.8, KIP-516) its id.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, boolean, int8, int16, int32, text, uuid
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

BROKER_DEFAULT = -1
"""``num_partitions``, ``replication_factor``: the broker's default (from version 4, KIP-464), or by ``assignments``."""


@message
class CreatableReplicaAssignment:
    """The replicas of one partition; the first one is the preferred leader."""

    partition_index: int = f(int32)
    broker_ids: list[int] = f(array(int32))


@message
class CreatableTopicConfig:
    """One setting; ``value`` None: the default."""

    name: str = f(text)
    value: str | None = f(text, nullable="0+")


@message
class CreatableTopic:
    """One topic; with ``assignments`` both numbers must be −1."""

    name: str = f(text)
    num_partitions: int = f(int32)
    replication_factor: int = f(int16)
    assignments: list[CreatableReplicaAssignment] = f(array(CreatableReplicaAssignment), default_factory=list)
    configs: list[CreatableTopicConfig] = f(array(CreatableTopicConfig), default_factory=list)


@message
class CreateTopicsRequest:
    """``timeout_ms``: how long to wait until the topics exist.  ``validate_only``: create nothing."""

    topics: list[CreatableTopic] = f(array(CreatableTopic))
    timeout_ms: int = f(int32, default=60_000)
    validate_only: bool = f(boolean, "1+", default=False, needed=True)


@message
class CreatedTopicConfig:
    """One setting of a created topic; ``config_source`` as in DescribeConfigs."""

    name: str = f(text)
    value: str | None = f(text, nullable="0+", default=None)
    read_only: bool = f(boolean, default=False)
    config_source: int = f(int8, default=-1)
    is_sensitive: bool = f(boolean, default=False)


@message
class CreatedTopic:
    """The result for one topic.  ``configs`` None: the client may not read them, see ``topic_config_error_code``."""

    name: str = f(text)
    topic_id: bytes = f(uuid, "7+", default=NO_UUID)
    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, "1+", nullable="1+", default=None)
    topic_config_error_code: int = f(int16, "5+", tag=0, default=0)
    num_partitions: int = f(int32, "5+", default=-1)
    replication_factor: int = f(int16, "5+", default=-1)
    configs: list[CreatedTopicConfig] | None = f(array(CreatedTopicConfig), "5+", nullable="5+", default_factory=list)


@message
class CreateTopicsResponse:
    """One entry for each requested topic."""

    throttle_time_ms: int = f(int32, "2+", default=0)
    topics: list[CreatedTopic] = f(array(CreatedTopic))


CREATE_TOPICS = Api(19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse, highest=7, flexible_from=5)
