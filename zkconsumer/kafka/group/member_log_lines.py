"""The log line of each event of a coordinator group's member.  Pure.

    event-name: Kafka's sentence key=value …        event-name key=value …  (Kafka logs no sentence)

An event with a sentence has the level of the statement in Kafka's ``AbstractCoordinator`` or ``ConsumerCoordinator``
(3.0), so a user who searches for Kafka's text finds it at the level that he expects.
"""

from __future__ import annotations

from zkconsumer.kafka.client_log_event import LogLevel
from zkconsumer.kafka.group.commands import LogMemberEvent
from zkconsumer.kafka.log_line import log_line

INFO_EVENTS = frozenset(
    {
        "assigned",
        "assignment-updated",
        "assignor-notified",
        "auto-commit-deferred",
        "commit-generation-over",
        "commit-without-group",
        "committed-offset-missing",
        "committed-offsets-unstable",
        "coordinator-found",
        "coordinator-lookup-rejected",
        "coordinator-unknown",
        "generation-reset",
        "group-assigned",
        "heartbeat-failed",
        "join-failed",
        "joined",
        "joining",
        "leaving",
        "losing",
        "partitions-given-away",
        "rejoin-requested",
        "revoking",
        "synced",
    }
)
WARNING_EVENTS = frozenset(
    {
        "assignment-missing",
        "assignment-unsubscribed",
        "auto-commit-failed",
        "close-timed-out",
        "commit-refused",
        "leave-response-unexpected",
        "poll-timeout-expired",
        "revocation-commit-failed",
        "revoked-without-commit",
        "topics-unassigned",
    }
)
ERROR_EVENTS = frozenset(
    {"commit-rejected", "commit-unauthorized", "heartbeat-rejected", "join-rejected", "leave-failed"}
)
"""All other events have level DEBUG."""


def level_of(event: LogMemberEvent) -> LogLevel:
    """The level of the event's line."""
    if event.name in ERROR_EVENTS:
        return "ERROR"
    if event.name in WARNING_EVENTS:
        return "WARNING"
    return "INFO" if event.name in INFO_EVENTS else "DEBUG"


def text_of(event: LogMemberEvent) -> str:
    """The line; a coordinator may send any text as a value."""
    return log_line(event.name, event.sentence, (f"{key}={value!r}" for key, value in event.fields))
