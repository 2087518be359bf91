"""For tests of programs: brokers and a ZooKeeper in memory, a recorder of their history, and a checker for Spark.

There is one broker in memory: ``bridge.broker``.  ``FakeCluster`` runs it in the threads of its clients, on a clock of
the test, with injected faults; ``FakeEnvironment`` is such a cluster with a ZooKeeper.  ``EmbeddedBroker`` runs it in a
thread of its own, at ports.
"""

from bridge.broker.server_settings import TlsFiles
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_environment import FakeEnvironment
from bridge.testing.history_recorder import HistoryRecorder
from bridge.testing.query_checker import (
    QUERY_FINDING_CODES,
    MemberRead,
    QueryFinding,
    QueryHistory,
    QueryVerdict,
    SinkRow,
    check_query_history,
)

__all__ = [
    "QUERY_FINDING_CODES",
    "EmbeddedBroker",
    "FakeCluster",
    "FakeEnvironment",
    "HistoryRecorder",
    "MemberRead",
    "QueryFinding",
    "QueryHistory",
    "QueryVerdict",
    "SinkRow",
    "TlsFiles",
    "check_query_history",
]
