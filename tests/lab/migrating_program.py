"""``MigratingConsumerConnector`` as a process that writes an event log for ``testing.checker``.

    python -m tests.lab.migrating_program FILE.properties --topic clicks:1 [--name ours]

Like ``tests.lab.member_program`` with another connector, and all its events; settings of the coordinator
group are in the same file.  Claims are not logged: the store that assigns partitions changes during the migration.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bridge.client.config import SCALA_CONSUMER_KEYS
from bridge.migration.dual.connector.migrating_connector import MigratingConsumerConnector
from tests.lab.member_program import main
from zkconsumer.config import ConsumerConfig
from zkconsumer.kafka.group.group_member_config import GROUP_SETTINGS

if TYPE_CHECKING:
    from tests.lab.member_program import MemberEventLog, ProgramSettings
    from zkconsumer.connector_base import ConsumerConnector


def migrating(settings: ProgramSettings, _: MemberEventLog) -> ConsumerConnector[Any]:
    """A migrating member."""
    group = {key: value for key, value in settings.items() if key in GROUP_SETTINGS and key not in SCALA_CONSUMER_KEYS}
    old = {key: value for key, value in settings.items() if key not in group}
    return MigratingConsumerConnector(ConsumerConfig.from_properties(old), group)


if __name__ == "__main__":
    sys.exit(main(connect=migrating))
