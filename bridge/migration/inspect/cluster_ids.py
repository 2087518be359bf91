"""Checks that a plan is applied to the Kafka cluster and the ZooKeeper that it was made with.

    brokers      Metadata, from 0.10.1 on                         both are "" if unknown: brokers before 0.10.1 have no
    ZooKeeper    /cluster/id below the chroot, of such brokers    id, and neither has a ZooKeeper without brokers

Topics and groups of the same names exist in many clusters.  An id that a plan does not contain is not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.errors import StalePlanError
from bridge.migration.inspect.group_snapshot import ClusterIds
from bridge.migration.steps.step import CheckingStep, StepDone, StepRefused, StepStatus
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.errors import PreconditionFailed, ZkReadNotAuthorized
from zkconsumer.kafka.metadata_client import fetch_cluster_id
from zkconsumer.strict_json import read_json_object
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.steps.migration_context import MigrationContext
    from zkconsumer.admin.admin_session import AdminSession

ID_CHARS_MAX = 200
"""An id that Kafka generates has 22 characters."""


def read_cluster_ids(session: AdminSession) -> ClusterIds:
    """Both ids; empty for brokers that do not answer.  Raises ``UnavailableError`` when ZooKeeper does not answer."""
    try:
        kafka = read_kafka_cluster_id(session)
    except BROKER_REQUEST_ERRORS:
        kafka = ""
    return ClusterIds(kafka, read_zookeeper_cluster_id(session))


def read_kafka_cluster_id(session: AdminSession) -> str:
    """The id from the first broker that has one; empty if no broker has an id.

    Raises ``BrokerUnreachable`` if no broker returned an id and one of them did not answer: see
    ``Brokers.execute_on_any``.
    """
    found = session.brokers.execute_on_any(fetch_cluster_id, is_conclusive=bool)
    return (found or "")[:ID_CHARS_MAX]


def read_zookeeper_cluster_id(session: AdminSession) -> str:
    """The id that brokers wrote below this chroot; empty if there is none, or this login may not read it."""
    try:
        node = session.get(paths.CLUSTER_ID)
        found = None if node is None else read_json_object(node.data.decode()).get("id")
    except (ZkReadNotAuthorized, ValueError):
        return ""
    return found[:ID_CHARS_MAX] if isinstance(found, str) and found.isprintable() else ""


@dataclass(frozen=True, slots=True)
class CheckClusterIds(CheckingStep):
    """The servers have the cluster ids of the plan, where the plan contains them."""

    context: MigrationContext

    name = "these are the servers of the plan"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["check that the brokers and ZooKeeper have the cluster ids of the plan"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        session, planned = self.context.session, self.context.plan.snapshot.clusters
        others = []
        if planned.zookeeper:
            others += _mismatch_text("ZooKeeper of cluster", planned.zookeeper, read_zookeeper_cluster_id(session))
        if planned.kafka:
            others += _mismatch_text("brokers of cluster", planned.kafka, read_kafka_cluster_id(session))
        return StepRefused(self._refusal(", and ".join(others))) if others else StepDone()

    def _refusal(self, others: str) -> PreconditionFailed:
        moving = self.context
        words = f"the plan of group {moving.group} was made with {others}. Give the servers of the plan"
        if moving.phase is not None:
            return PreconditionFailed(f"{words} (--zookeeper, --bootstrap-server): its migration is active there")
        return StalePlanError(
            f"{words} (--zookeeper, --bootstrap-server), or plan again for these: zkconsumer migrate plan "
            f"{moving.group}"
        )


def _mismatch_text(what: str, planned: str, found: str) -> list[str]:
    whose = f"of {found}" if found else "without an id"
    return [] if found == planned else [f"{what} {planned}, and these are {whose}"]
