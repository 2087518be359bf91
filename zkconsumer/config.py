"""``ConsumerConfig``: the settings of a consumer, also from old files.  Pure, except that it reads files.

The tables are in ``zkconsumer.config_tables``, the machinery is in ``zkconsumer.configuration``.
"""

from __future__ import annotations

from typing import Any

from zkconsumer.config_tables.broker_connection_settings import BrokerConnectionSettings
from zkconsumer.config_tables.scala_consumer import ScalaConsumerSettings
from zkconsumer.config_tables.transaction_settings import TransactionSettings
from zkconsumer.config_tables.zkconsumer_settings import ZkConsumerSettings
from zkconsumer.config_tables.zookeeper_security import ZooKeeperLoginSettings, ZooKeeperSecuritySettings
from zkconsumer.configuration import Configuration


class ConsumerConfig(
    ScalaConsumerSettings,
    BrokerConnectionSettings,
    ZooKeeperSecuritySettings,
    ZkConsumerSettings,
    TransactionSettings,
    ZooKeeperLoginSettings,
    Configuration,
):
    """The settings of one consumer.

    ``ConsumerConfig(group_id="g", zookeeper_connect="zk1:2181,zk2:2181/kafka", auto_offset_reset="smallest")`` takes
    attributes, ``ConsumerConfig({"group.id": "g", ...})`` a dictionary of keys, and
    ``ConsumerConfig.from_properties("consumer.properties")`` reads an old file.  All raise ``InvalidConfigException``
    with a line for each problem.  A configuration does not change.

    See ``Configuration`` for ``values``, ``given``, ``ignored`` and the methods that a subclass may override.
    """

    __slots__ = ()

    @classmethod
    def settle(cls, values: dict[str, Any]) -> dict[str, str]:
        """See ``Configuration``."""
        if not values["dual.commit.enabled"] or values["offsets.storage"] == "kafka":
            return {}
        values["dual.commit.enabled"] = False
        return {"dual.commit.enabled": "has no effect with offsets.storage=zookeeper, as in the Scala consumer"}


TABLES = ConsumerConfig._tables
"""The tables, in the order in which ``ConsumerConfig`` names them."""

SETTINGS = ConsumerConfig._settings
"""Key -> setting, in the order of the tables."""
