"""Real local clusters for tests: ZooKeeper, brokers of every age, members of both kinds.

Needs Java and Maven; what is fetched is kept (see ``cache``).  Start with ``Sandbox``.
"""

from zkconsumer.testing.sandbox import cache
from zkconsumer.testing.sandbox.artifacts import SETS, ZOOKEEPERS, ensure_artifact_set, missing_requirement, zookeeper_release
from zkconsumer.testing.sandbox.broker import Broker
from zkconsumer.testing.sandbox.cluster import Sandbox
from zkconsumer.testing.sandbox.kraft import KraftBroker
from zkconsumer.testing.sandbox.load import Load, Produced, ToSend
from zkconsumer.testing.sandbox.member import Handed, MemberProcess, ScalaMember
from zkconsumer.testing.sandbox.modern_member import ModernMember
from zkconsumer.testing.sandbox.python_member import PythonMember
from zkconsumer.testing.sandbox.reader import Reader, Reading
from zkconsumer.testing.sandbox.runs import Run, reap
from zkconsumer.testing.sandbox.scala_host import ScalaHost
from zkconsumer.testing.sandbox.security import Security
from zkconsumer.testing.sandbox.spark_jars import ensure_spark_jars, missing_spark_requirement
from zkconsumer.testing.sandbox.tools import ToolResult, run_tool
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.testing.sandbox.zookeeper import ZooKeeperServer
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin

__all__ = [
    "SETS",
    "ZOOKEEPERS",
    "Broker",
    "Handed",
    "KraftBroker",
    "Load",
    "MemberProcess",
    "ModernMember",
    "Produced",
    "PythonMember",
    "Reader",
    "Reading",
    "Run",
    "Sandbox",
    "ScalaHost",
    "ScalaMember",
    "Security",
    "ToSend",
    "ToolResult",
    "ZooKeeperAdmin",
    "ZooKeeperServer",
    "cache",
    "ensure_set",
    "ensure_spark_jars",
    "missing_for",
    "missing_for_spark_jars",
    "reap",
    "run_tool",
    "wait_until",
    "zookeeper_release",
]
