"""DeleteTopics (20): only the controller accepts it (Kafka 0.10.1, KIP-4).

From version 6 on (2.8, KIP-516) a topic is identified by name or by id.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import NO_UUID, int16, int32, text, uuid
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

TOPIC_STATES_FROM = 6
"""The first version with ``topics``; earlier versions have ``topic_names``."""


@message
class DeleteTopicState:
    """One topic, by name or by id."""

    name: str | None = f(text, nullable="0+", default=None)
    topic_id: bytes = f(uuid, default=NO_UUID)


@message
class DeleteTopicsRequest:
    """``topic_names`` up to version 5, ``topics`` from 6 on.  ``timeout_ms``: how long to wait for the deletion."""

    topics: list[DeleteTopicState] = f(array(DeleteTopicState), "6+", default_factory=list, needed=True)
    topic_names: list[str] = f(array(text), "0-5", default_factory=list, needed=True)
    timeout_ms: int = f(int32)


@message
class DeletedTopic:
    """The result for one topic; ``name`` None (from version 6): no topic has this id."""

    name: str | None = f(text, nullable="6+")
    topic_id: bytes = f(uuid, "6+", default=NO_UUID)
    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, "5+", nullable="5+", default=None)


@message
class DeleteTopicsResponse:
    """One entry for each requested topic."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    responses: list[DeletedTopic] = f(array(DeletedTopic))


DELETE_TOPICS = Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse, highest=6, flexible_from=4)
