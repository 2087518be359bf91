"""The log line of each event of the group coordinator.  Pure.

    event-name: Kafka's sentence key=value …        event-name key=value …  (Kafka logs no sentence)

An event with a sentence has the level of the statement in Kafka's ``GroupCoordinator``, ``GroupMetadataManager`` or
``GroupMetadata`` (3.0), with one exception: a broker loads 50 partitions without a group at its start, and a line for
each would hide the lines about groups.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.coordinator.commands import LogGroupEvent
from bridge.coordinator.member_metadata import MemberMetadata
from zkconsumer.kafka.client_log_event import LogLevel
from zkconsumer.kafka.log_line import log_line

DEBUG_EVENTS = frozenset(
    {
        "group-append-failed",
        "members-not-synced",
        "offsets-append-failed",
        "partition-elected",
        "partition-loading",
        "pending-member-joining",
    }
)
WARNING_EVENTS = frozenset(
    {"append-failed", "empty-assignment-sent", "members-without-assignment", "static-member-not-written"}
)
ERROR_EVENTS = frozenset({"group-append-rejected", "rebalance-not-completed"})
"""All other events have level INFO."""


def level_of(event: LogGroupEvent) -> LogLevel:
    """The level of the event's line."""
    if event.name in ERROR_EVENTS:
        return "ERROR"
    if event.name in WARNING_EVENTS:
        return "WARNING"
    is_without_groups = event.name == "partition-loaded" and ("groups", 0) in event.fields
    return "DEBUG" if event.name in DEBUG_EVENTS or is_without_groups else "INFO"


def text_of(event: LogGroupEvent) -> str:
    """The line; a client chooses its client id, and so a part of its member id."""
    return log_line(event.name, event.sentence, (f"{key}={value}" for key, value in event.fields))


def option_text(value: object) -> str:
    """A Scala ``Option``."""
    return "None" if value is None else f"Some({value})"


def set_text(values: Iterable[object]) -> str:
    """A Scala ``Set``, in the order of ``values``."""
    return f"Set({', '.join(map(str, values))})"


def member_text(member: MemberMetadata) -> str:
    """``MemberMetadata.toString``."""
    protocols = ", ".join(name for name, _ in member.supported_protocols)
    return (
        f"MemberMetadata(memberId={member.member_id}, groupInstanceId={option_text(member.group_instance_id)}, "
        f"clientId={member.client_id}, clientHost={member.client_host}, sessionTimeoutMs={member.session_timeout_ms}, "
        f"rebalanceTimeoutMs={member.rebalance_timeout_ms}, supportedProtocols=List({protocols}))"
    )
