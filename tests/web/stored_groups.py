"""Groups that have offsets in ZooKeeper and no members, for the page: many of them cost one request each."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import CreateOp, Multi

STORED_OFFSET = 5


def make_groups(session: AdminSession, topic: str, partitions: Mapping[str, int]) -> None:
    """``partitions``: how many partitions of the topic each group has, by its name."""
    for name, count in partitions.items():
        of_topic = paths.offset(name, TopicPartition(topic, 0)).rpartition("/")[0]
        folders = [paths.group_root(name), paths.ids(name), paths.owners(name), paths.offsets(name), of_topic]
        leaves = [CreateOp(paths.offset(name, TopicPartition(topic, n)), b"%d" % STORED_OFFSET) for n in range(count)]
        session.request([Multi((*(CreateOp(folder, b"") for folder in folders), *leaves))])
