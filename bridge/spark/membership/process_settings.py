"""The settings that a membership process receives when it starts: the group's configuration, the subscription, the
mode. Pure.

They are sent over the pipe and never in arguments or the environment, which other users of the machine can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from bridge.spark.group_membership import CommitMode
from bridge.spark.group_pipeline import GroupPipeline
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import InternalError, UsageError
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION, TopicSubscription
from zkconsumer.member.topic_filter import Blacklist, Whitelist

DRAIN_TIMEOUT_MS = 5_000
"""How long a batch may keep partitions for which another member waits: a Scala consumer tries at 0, 2, 4 and 6 s, and
then stops."""

RELEASE_SETTLE_MS = 500
"""A Scala consumer reads the offset before it acquires a partition, some 100 ms before in a young JVM.  When we still
own the partition for so long after the last commit, it fails and reads the offset again; it would pause for 2 s
anyway."""

SPARK_DEFAULTS: Mapping[str, int] = {
    "rebalance.drain.timeout.ms": DRAIN_TIMEOUT_MS,
    "release.settle.ms": RELEASE_SETTLE_MS,
}
"""Settings with another default for a query than for a connector."""

TAKEOVER_WAIT_MS = 10_000
"""How long a takeover waits for other members to leave, by default; the session of a killed one must expire first."""

ALL_THREADS = 0
"""``consumer.threads=all``: this query takes the whole group over."""

NO_METRICS_ADDRESS = ""
"""No metrics for Prometheus."""


def claims_unsupported_reason(mode: CommitMode, config: ConsumerConfig) -> str:
    """Why this mode is not possible with these offset stores, or ""."""
    if mode is not CommitMode.CLAIM or config.offsets_storage != "kafka" or config.dual_commit_enabled:
        return ""
    return (
        "group.offsets.commit=claim needs the group's offsets in ZooKeeper, because a commit to Kafka cannot have a "
        "condition: set dual.commit.enabled=true (ZooKeeper decides, Kafka gets a copy), or "
        "group.offsets.commit=afterBatch"
    )


@dataclass(frozen=True, slots=True)
class MembershipProcessSettings:
    """``properties``: keys of the consumer's configuration (``group.id``, ``zookeeper.connect``, security …) -> text.

    ``pattern``: ``static`` with ``topics`` as names, or ``white_list`` / ``black_list`` with one regular expression.
    ``threads``: of each topic, or ``ALL_THREADS``; ``topic_threads``: of named topics with a number of their own.
    ``consumer_id``: the complete id of the member; a restarted process has the same.  ``run``: the unique name of this
    run of the query (``claims.query_runs``).  ``pipeline``: the pipeline whose query it is; None: of another program.
    ``takeover_wait_ms``: see ``TAKEOVER_WAIT_MS``.  ``metrics_listen``:
    ``host:port`` that serves text for Prometheus, or ``NO_METRICS_ADDRESS``.  ``on_rewind``: ``onGroupRewind``.
    """

    properties: Mapping[str, str]
    pattern: str
    topics: tuple[str, ...]
    consumer_id: str
    threads: int = 1
    topic_threads: Mapping[str, int] = field(default_factory=dict)
    mode: CommitMode = CommitMode.AFTER_BATCH
    on_rewind: str = "ignore"
    takeover_wait_ms: int = TAKEOVER_WAIT_MS
    metrics_listen: str = NO_METRICS_ADDRESS
    log_level: str = "INFO"
    run: str = ""
    pipeline: GroupPipeline | None = None

    def __repr__(self) -> str:
        """Without the properties, since they contain secrets."""
        return f"{type(self).__name__}(group={self.group!r}, topics={self.topics!r}, mode={self.mode.value!r})"

    @property
    def group(self) -> str:
        return str(self.properties.get("group.id", ""))

    @property
    def is_takeover(self) -> bool:
        return self.threads == ALL_THREADS

    def config(self) -> ConsumerConfig:
        """The consumer's configuration, checked.

        Raises ``InvalidConfigException``, and ``UsageError`` for a mode that is not possible with the offset store.
        """
        config = ConsumerConfig.from_properties({**SPARK_DEFAULTS, **self.properties})
        if why := claims_unsupported_reason(self.mode, config):
            raise UsageError(why)
        return config

    def subscription(self, threads: int) -> TopicSubscription:
        """The subscription to register; raises ``InvalidTopicFilter`` or ``PatternNotEvaluable`` for an invalid
        pattern."""
        if self.pattern == STATIC_SUBSCRIPTION:
            return TopicSubscription(
                STATIC_SUBSCRIPTION, {topic: self.topic_threads.get(topic, threads) for topic in self.topics}
            )
        kind = {Whitelist.pattern: Whitelist, Blacklist.pattern: Blacklist}[self.pattern]
        [regex] = self.topics
        return TopicSubscription(self.pattern, {kind(regex).regex: threads})

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"topics": list(self.topics), "mode": self.mode.value}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> MembershipProcessSettings:
        """Raises ``InternalError`` for what ``to_json`` does not write."""
        try:
            assert found.keys() == {each.name for each in fields(cls)}, "all fields, and no others"
            given = found | {"topics": tuple(found["topics"]), "mode": CommitMode(found["mode"])}
            if found["pipeline"] is not None:
                given["pipeline"] = GroupPipeline(**found["pipeline"])
            return cls(**given)
        except (AssertionError, TypeError, ValueError) as error:
            raise InternalError(
                f"the settings of a membership process cannot be parsed: {type(error).__name__}"
            ) from error
