"""Builds a cluster with open logs from the settings, without threads and sockets."""

from __future__ import annotations

import base64
import os
import uuid
from dataclasses import replace

from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.catalogue import CatalogueFile, MemoryCatalogueStore
from bridge.broker.config import group_config_entries, read_broker_config
from bridge.broker.data_folder import DataFolder
from bridge.broker.emulated_releases import emulated_release
from bridge.broker.log.segment_files import OpenFiles
from bridge.broker.server_settings import BrokerServerSettings
from bridge.broker.timers import Scheduler
from bridge.broker.topic_store import OFFSETS_TOPIC, TopicStore
from bridge.coordinator.behaviour import behaviour_of
from bridge.coordinator.config import group_coordinator_keys, read_group_coordinator_config
from bridge.coordinator.group_coordinator import GroupCoordinator
from zkconsumer.errors import PreconditionFailed


def build_cluster(settings: BrokerServerSettings, scheduler: Scheduler) -> BrokerCluster:
    """Check the settings, lock the directory and read the logs; ``BrokerCluster.close`` releases them.

    ``UsageError``: invalid settings.  ``PreconditionFailed``: the directory is in use, or cannot be read or
    written, or a log is damaged.
    """
    release, behaviour = emulated_release(settings.release), behaviour_of(settings.release)
    group_config = read_group_coordinator_config(settings.properties, behaviour.default_config())
    config = read_broker_config(settings.properties, group_coordinator_keys())
    folder = None if settings.data is None else DataFolder(settings.data)
    files = OpenFiles(settings.sync)
    try:
        topics = TopicStore(
            MemoryCatalogueStore() if folder is None else CatalogueFile(folder.catalogue),
            folder,
            files,
            config=config,
            releases=dict.fromkeys(range(settings.first_node_id, settings.first_node_id + settings.nodes), release),
            new_cluster_id=base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="),
            random_bytes=os.urandom,
        )
    except BaseException as error:
        files.close_all()
        if folder is not None:
            folder.unlock()
        if isinstance(error, OSError) and settings.data is not None:
            raise PreconditionFailed(
                f"{error.filename or settings.data} cannot be read or written: {error.strerror or error}; make room, "
                "or give this user the right to it"
            ) from error
        raise
    offsets = topics.get(OFFSETS_TOPIC)
    if offsets is not None:
        # The partition of a group was fixed by its hash when the topic was created.
        group_config = replace(group_config, offsets_topic_partitions=len(offsets.partitions))
    return BrokerCluster(
        topics,
        config,
        group_config=group_config,
        group_rows=group_config_entries(group_config, behaviour.default_config()),
        new_coordinator=lambda node_id: GroupCoordinator(group_config, behaviour, new_member_id),
        scheduler=scheduler,
        authorizer=settings.authorizer,
    )


def new_member_id(client_id: str) -> str:
    """Like Kafka: the client id, and a random rest."""
    return f"{client_id}-{uuid.uuid4()}"
