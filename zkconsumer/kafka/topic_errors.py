"""The error for topics that the brokers reject.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.errors import InvalidTopicException, TopicAuthorizationException
from zkconsumer.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.kafka.error_codes import ErrorCode

FAILED_TOPICS_NAMED_MAX = 5
"""How many topics an error text names."""


def topic_exception_of(refused: Mapping[str, ErrorCode]) -> TopicAuthorizationException | InvalidTopicException:
    """The error that Kafka's client raises for these; a missing permission takes precedence over an invalid name."""
    denied = sorted(topic for topic, error in refused.items() if error == TOPIC_AUTHORIZATION_FAILED)
    names = _names(denied or sorted(refused))
    if denied:
        return TopicAuthorizationException(
            f"the brokers' ACLs do not let this user read {names} ({TOPIC_AUTHORIZATION_FAILED}): allow DESCRIBE and "
            "READ on it for this user, log in as another user, or remove it from the subscription",
            denied,
        )
    return InvalidTopicException(
        f"the brokers do not accept the name of {names} ({refused[min(refused)]}): correct it in the subscription",
        refused,
    )


def _names(topics: list[str]) -> str:
    some = ", ".join(repr(topic) for topic in topics[:FAILED_TOPICS_NAMED_MAX])
    more = f" and {len(topics) - FAILED_TOPICS_NAMED_MAX} more" if len(topics) > FAILED_TOPICS_NAMED_MAX else ""
    return f"topic {some}" if len(topics) == 1 else f"the topics {some}{more}"
