"""The page ``migration_docs/reference/development-broker.md``, from the tables: releases, settings, limits.  Pure."""

from __future__ import annotations

from dataclasses import fields

from bridge.broker.client_connection import AUTHENTICATION_TIMEOUT_MS, READ_AHEAD_BYTES, SLOW_READER_TIMEOUT_MS
from bridge.broker.config import BrokerConfig, TopicConfigOverrides
from bridge.broker.emulated_releases import DEFAULT_RELEASE, EMULATED_RELEASES
from bridge.broker.log.producer_state import BATCHES_KEPT, PRODUCERS_MAX
from bridge.broker.sasl_server_authenticator import LOGIN_BYTES_MAX
from bridge.coordinator.config import GroupCoordinatorConfig
from zkconsumer.wire.schemas import APIS

HEAD = f"""# The development broker
<!-- Generated: python tests/generate_docs.py --write -->

API versions, settings and limits of `zkconsumer broker` and `bridge.testing.EmbeddedBroker`.
How to use them: [run the development broker](../how-to/run-the-development-broker.md).
Its group coordinator, class by class: [parity of the group coordinator](parity-coordinator.md).

## API versions by release

`--emulate RELEASE` (the default is {DEFAULT_RELEASE}). The versions of each supported API are those of real brokers of
the release; `format` is the message format of stored records.

"""

SETTINGS = """
## Settings

`--set KEY=VALUE`, or `properties=` of `EmbeddedBroker`: Kafka's own keys. Any other key is refused.

| key | default |
|---|---|
"""

OF_GROUPS = """
Settings of the group coordinator. The defaults are those of the newest releases; an emulated old release has its own
defaults where they differ. Unless you set them, `EmbeddedBroker` has `group.initial.rebalance.delay.ms=0` and
`group.min.session.timeout.ms=100`.

| key | default |
|---|---|
"""

OF_TOPICS = """
Settings of a topic (CreateTopics); the default of each is the setting of the broker. With `cleanup.policy=compact`
every record must have a key; the broker never compacts a log.

"""


def render() -> str:
    """The whole page."""
    names = list(EMULATED_RELEASES)
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines.append("| format | " + " | ".join(str(EMULATED_RELEASES[name].magic) for name in names) + " |")
    for key in EMULATED_RELEASES[DEFAULT_RELEASE].ranges:
        spans = []
        for name in names:
            known = EMULATED_RELEASES[name].ranges.get(key)
            spans.append("-" if known is None else "-".join(map(str, sorted({*known}))))
        lines.append(f"| {APIS[key].name} | " + " | ".join(spans) + " |")
    broker = [f"| `{c.metadata['key']}` | {_shown(c.default)} |" for c in fields(BrokerConfig)]
    groups = [f"| `{c.metadata['kafka.key']}` | {c.default} |" for c in fields(GroupCoordinatorConfig)]
    topics = [f"- `{c.metadata['key']}`" for c in fields(TopicConfigOverrides)]
    limits = [
        f"- a login takes at most {AUTHENTICATION_TIMEOUT_MS // 1000} s, and a frame before it has at most "
        f"{LOGIN_BYTES_MAX} bytes",
        f"- while a request waits, the broker reads some {READ_AHEAD_BYTES // 1024} KiB of the next ones at most",
        f"- a client that reads nothing of its answer loses its connection after {SLOW_READER_TIMEOUT_MS // 1000} s",
        f"- a partition remembers the last {BATCHES_KEPT} batches of {PRODUCERS_MAX} idempotent producers",
    ]
    parts = [HEAD, *_block(lines), SETTINGS, *_block(broker), OF_GROUPS, *_block(groups), OF_TOPICS, *_block(topics)]
    return "".join([*parts, "\n## Limits that cannot be set\n\n", *_block(limits)])


def _block(lines: list[str]) -> list[str]:
    return [line + "\n" for line in lines]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
