"""The client side of a member of a coordinator group: a pure state machine, its threads, and its connections.

    from bridge.client import CoordinatorConsumerConnector, KafkaConsumer

These and the other public names of this package are names of ``bridge``, too; they are loaded when they are first used.

``KafkaConsumer`` returns records from ``poll`` (``kafka_consumer/``).  ``CoordinatorConsumerConnector`` has streams and
fetchers, the same as those of a member of a ZooKeeper group:

    control thread --event--> ConsumerCoordinator --commands--> network, timers, callbacks
                                   (pure)                              |
                    <-- response, disconnect, timer, callback done ----'

``events`` and ``commands`` in ``zkconsumer/kafka/group`` are the complete interface of the machine; its methods have
Kafka's own names.

    kafka_consumer/              KafkaConsumer, its configuration, and the result of poll
    coordinator_connector.py     CoordinatorConsumerConnector: the API for a program
    coordinator_from_config.py   settings of a member from the old consumer's configuration
    coordinator_membership.py    connects the machine, the threads and the blocking calls
      coordinator_event_loop.py  the control thread: events in, commands out, the lease
      commit_calls.py            blocking commits
      network.py                 the connections to the coordinator, and requests to any broker
      group_topics.py            the topics and their partitions, for the machine
      assignment_executor.py     starts and releases partitions: drain, commit, listener, drop
      stream_assignor.py         divides the assignment among streams
    assignors/                   how a leader computes the assignment
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from bridge import (
        ConsumerGroupMetadata,
        ConsumerInterceptor,
        ConsumerRebalanceListener,
        ConsumerRecords,
        CooperativeStickyAssignor,
        CoordinatorConsumerConfig,
        CoordinatorConsumerConnector,
        KafkaConsumer,
        KafkaConsumerConfig,
        MetricName,
        OffsetCommitCallback,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
    )

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRebalanceListener",
    "ConsumerRecords",
    "CooperativeStickyAssignor",
    "CoordinatorConsumerConfig",
    "CoordinatorConsumerConnector",
    "KafkaConsumer",
    "KafkaConsumerConfig",
    "MetricName",
    "OffsetCommitCallback",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(__name__, dict.fromkeys(__all__, "bridge"))
