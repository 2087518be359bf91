"""The external dependencies of the source: the membership in the group, the logs, the clock.  Tests replace them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.spark.group_membership import GroupMembership
from bridge.spark.group_pipeline import GroupPipeline
from bridge.spark.membership.process_client import MembershipProcessClient
from bridge.spark.membership.process_settings import ALL_THREADS, NO_METRICS_ADDRESS, MembershipProcessSettings
from bridge.spark.options import AssignedPartitions, SourceOptions, SubscribedTopics
from bridge.spark.source import fault_injection
from bridge.spark.source.announced_pipeline import await_pipeline
from bridge.spark.source.log_reader import BrokerLogReader, LogReader
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import StopSignal
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.types import BrokerAddress


def open_membership_process(options: SourceOptions) -> GroupMembership:
    """A member of the group in a separate process.  Raises the errors of ``await_pipeline``."""
    folder = options.batch_ranges_path
    pipeline = None if folder is None else await_pipeline(folder, SYSTEM_CLOCK, StopSignal().wait)
    return MembershipProcessClient(membership_process_settings(options, pipeline))


def membership_process_settings(
    options: SourceOptions, pipeline: GroupPipeline | None = None
) -> MembershipProcessSettings:
    """The settings that the membership process receives.

    The client completes them with the consumer id.  ``threads``: the number of each topic; if the option names a number
    for each topic, ``threads`` is 1 and ``topic_threads`` has those; without a number (takeover) ``ALL_THREADS``.
    """
    config, subscribed = options.config, options.topic_selection
    assert not isinstance(subscribed, AssignedPartitions), "in a batch only"
    given = {key: config.values[key] for key in config.given}
    threads = options.threads
    return MembershipProcessSettings(
        properties={key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()},
        pattern=STATIC_SUBSCRIPTION if isinstance(subscribed, SubscribedTopics) else subscribed.pattern,
        topics=subscribed.topics if isinstance(subscribed, SubscribedTopics) else (subscribed.regex,),
        consumer_id="",
        threads=threads if isinstance(threads, int) else 1 if threads else ALL_THREADS,
        topic_threads=threads if isinstance(threads, Mapping) else {},
        mode=options.commit_mode,
        on_rewind=options.on_group_rewind,
        metrics_listen=options.metrics_listen or NO_METRICS_ADDRESS,
        pipeline=pipeline,
    )


def open_logs(options: SourceOptions, find: Callable[[], Sequence[BrokerAddress]]) -> LogReader:
    """A reader of logs that sends requests to the brokers."""
    return BrokerLogReader(options.config, find)


@dataclass(frozen=True, slots=True)
class SourceDependencies:
    """The external dependencies of the source; tests replace them."""

    membership: Callable[[SourceOptions], GroupMembership] = open_membership_process
    logs: Callable[[SourceOptions, Callable[[], Sequence[BrokerAddress]]], LogReader] = open_logs
    clock: Clock = SYSTEM_CLOCK
    pause: Callable[[int], object] = field(default_factory=lambda: StopSignal().wait)
    new_query: Callable[[], str] = lambda: uuid.uuid4().hex
    fault_point: Callable[[str], fault_injection.FaultPoint] = fault_injection.fault_point_of


def bootstrap_brokers_of(options: SourceOptions) -> list[BrokerAddress]:
    """The brokers of ``kafka.bootstrap.servers``; none when it is not given."""
    servers = options.config.bootstrap_servers
    if servers is None:
        return []
    pairs = [server.rpartition(":") for server in servers.split(",")]
    return [BrokerAddress(-1, host.strip("[]"), int(port)) for host, _, port in pairs]
