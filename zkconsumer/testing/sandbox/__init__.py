"""Real local clusters for tests: ZooKeeper, brokers of every age, members of both kinds.

Needs Java and Maven; downloaded files are kept (see ``cache``).  Start with ``Sandbox``.
"""

from zkconsumer.testing.sandbox import cache
from zkconsumer.testing.sandbox.artifacts import (
    ARTIFACT_SETS,
    ZOOKEEPER_RELEASES,
    ensure_artifact_set,
    missing_requirement,
    zookeeper_release,
)
from zkconsumer.testing.sandbox.kraft_broker import KraftBroker
from zkconsumer.testing.sandbox.member_process import DeliveredMessage, MemberProcess, ScalaMember
from zkconsumer.testing.sandbox.producer_process import ProducedRange, ProducerProcess, RecordToSend
from zkconsumer.testing.sandbox.reader_process import ReaderProcess, ReadResult
from zkconsumer.testing.sandbox.sandbox_cluster import Sandbox
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun, reap
from zkconsumer.testing.sandbox.sandbox_security import SandboxSecurity
from zkconsumer.testing.sandbox.scala_host import ScalaHost
from zkconsumer.testing.sandbox.spark_jars import (
    ensure_delta_jars,
    ensure_spark_jars,
    missing_delta_requirement,
    missing_spark_requirement,
)
from zkconsumer.testing.sandbox.tools import ToolResult, run_tool
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin
from zkconsumer.testing.sandbox.zookeeper_mode_broker import ZooKeeperModeBroker
from zkconsumer.testing.sandbox.zookeeper_process import ZooKeeperServer

__all__ = [
    "ARTIFACT_SETS",
    "ZOOKEEPER_RELEASES",
    "DeliveredMessage",
    "KraftBroker",
    "MemberProcess",
    "ProducedRange",
    "ProducerProcess",
    "ReadResult",
    "ReaderProcess",
    "RecordToSend",
    "Sandbox",
    "SandboxRun",
    "SandboxSecurity",
    "ScalaHost",
    "ScalaMember",
    "ToolResult",
    "ZooKeeperAdmin",
    "ZooKeeperModeBroker",
    "ZooKeeperServer",
    "cache",
    "ensure_artifact_set",
    "ensure_delta_jars",
    "ensure_spark_jars",
    "missing_delta_requirement",
    "missing_requirement",
    "missing_spark_requirement",
    "reap",
    "run_tool",
    "wait_until",
    "zookeeper_release",
]
