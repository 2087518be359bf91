"""The setting for records of transactions (0.11, KIP-98).  Pure."""

from __future__ import annotations

from zkconsumer.config_def import Origin, SettingsTable, choice


class TransactionSettings(SettingsTable):
    """The setting of Kafka's newer clients for records of transactions."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    isolation_level = choice(
        "isolation.level",
        ("read_uncommitted", "read_committed"),
        "Which records of transactions a stream delivers. `read_uncommitted`: all, as the Scala consumer does. "
        "`read_committed`: none of aborted transactions, and only those before the first record of an open transaction "
        "(brokers from 0.11 on). Give all members of a group the same value.",
    )
