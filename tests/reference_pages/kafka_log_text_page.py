"""The page ``kafka-log-texts.md``, from the tables of ``tests/data/kafka-log-statements``."""

from __future__ import annotations

from tests.kafka_log_statements import LEVELS, Statement, read_table

INTRODUCTION = """\
# Kafka's log texts

<!-- Generated: python tests/generate_docs.py --write -->

A search for a text of Kafka's log finds it in ours. A line begins with our event; then comes Kafka's sentence in
Kafka's words and at Kafka's level, then our `key=value`:

    joining: (Re-)joining group reason='group is already rebalancing' member='c-7f0d'

The tables have each log statement of the classes of Kafka 3.0 that run a consumer group; a statement of a later
release has this release after its method. `…` is a value. A value has the form that Java or Scala gives it;
partitions are in sorted order, and Kafka's sentence of several lines is one line. Errors have Kafka's messages. Search
for a part of the sentence without values.

[Log lines](log-lines.md) has the keys of each event of a member. A statement without an event has the reason in the
last column.
"""

MEMBER = """
## A member

The statements of `org.apache.kafka.clients.consumer.internals`. Logger `zkconsumer.member`.
"""

COORDINATOR = """
## The group coordinator of the development broker

The statements of `kafka.coordinator.group`. Logger `bridge.broker.coordinator_runtime`.
"""

HEADER = "| Kafka's text | level | Kafka's method | our event |\n|---|---|---|---|\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(statement: Statement) -> str:
    event = f"`{statement.event}`" if statement.is_logged else f"none: {statement.reason}"
    text = _cell(statement.text.replace("`", "'").replace("{}", "…"))
    return f"| `{text}` | {LEVELS[statement.level]} | `{statement.method}` | {event} |\n"


def render() -> str:
    """The whole page."""
    member, coordinator = ("".join(map(_row, read_table(name))) for name in ("consumer", "coordinator"))
    return f"{INTRODUCTION}{MEMBER}\n{HEADER}{member}{COORDINATOR}\n{HEADER}{coordinator}"
