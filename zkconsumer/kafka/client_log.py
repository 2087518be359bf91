"""Writes the ``ClientLogEvent`` values of the pure parts of the client to their logger."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from zkconsumer.kafka.client_log_event import ClientLogEvent

log = logging.getLogger("zkconsumer.kafka")

LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


def log_client_events(events: Iterable[ClientLogEvent]) -> None:
    """Write each event as one line ``event-name key=value …``."""
    for event in events:
        level = LEVELS[event.level]
        if log.isEnabledFor(level):
            log.log(level, "%s %s", event.name, " ".join(f"{key}={value}" for key, value in event.fields))
