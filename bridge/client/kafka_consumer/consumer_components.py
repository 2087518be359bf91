"""Makes the parts of a ``KafkaConsumer`` from its configuration (Java: the constructor of ``KafkaConsumer``).

``create_components`` either returns all of them, or closes what it has opened and raises one error with the cause.
``ConsumerEnvironment`` has what the parts use of the operating system; tests pass another one.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from bridge.client.consumer_interceptors import ConsumerInterceptors, load_interceptors
from bridge.client.custom_assignor import create_assignors
from bridge.client.deserializers import load_deserializer
from bridge.client.kafka_consumer.heartbeat_thread import StartThread
from bridge.client.kafka_consumer.kafka_consumer_config import KEYS_WITHOUT_EFFECT, KafkaConsumerConfig
from bridge.client.kafka_consumer.polled_coordinator import PolledCoordinator
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.threads import spawn
from zkconsumer.errors import InvalidConfigException, KafkaException, ZkConsumerError
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.broker_security import SecureConnectionFactory, broker_security_from_config
from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetched_records import Deserializer
from zkconsumer.kafka.fetch.fetcher import Fetcher
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.group.consumer_coordinator import ConsumerCoordinator
from zkconsumer.kafka.group.group_member_config import GROUP_SETTINGS, GroupMemberConfig
from zkconsumer.kafka.metadata.cluster import ClusterResourceListener
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.default_metadata_updater import DefaultMetadataUpdater
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient, KafkaClient
from zkconsumer.kafka.net.exponential_backoff import Uniform
from zkconsumer.kafka.net.host_resolver import bootstrap_addresses
from zkconsumer.kafka.net.network_client import new_network_client
from zkconsumer.kafka.net.network_machine import NetworkSettings
from zkconsumer.wire.isolation_level import IsolationLevel

log = logging.getLogger("zkconsumer.member")

_numbers = count(1)


def new_kafka_client(
    config: KafkaConsumerConfig,
    client_id: str,
    metadata: ConsumerMetadata,
    clock: Clock,
    oauth_token: Callable[[], str] | None,
) -> KafkaClient:
    """A client with sockets, TLS and SASL."""
    security = SecureConnectionFactory(broker_security_from_config(config, oauth_token), clock)
    settings = NetworkSettings(
        client_id=client_id,
        request_timeout_ms=config.request_timeout_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=config.connections_max_idle_limit_ms,
    )
    return new_network_client(
        security.new_channel,
        DefaultMetadataUpdater(metadata, config.request_timeout_ms),
        settings,
        clock,
        diagnose=security.diagnose,
        asks_versions=config.api_version_request,
        send_buffer_bytes=config.send_buffer_bytes,
        receive_buffer_bytes=config.receive_buffer_bytes,
    )


NewKafkaClient: TypeAlias = Callable[
    [KafkaConsumerConfig, str, ConsumerMetadata, Clock, Callable[[], str] | None], KafkaClient
]
"""As ``new_kafka_client``."""


@dataclass(frozen=True, slots=True)
class ConsumerEnvironment:
    """What the parts of a consumer use of the operating system: time, network, a thread, random numbers.

    ``start_thread`` starts the heartbeat thread.
    """

    clock: Clock = SYSTEM_CLOCK
    new_kafka_client: NewKafkaClient = new_kafka_client
    start_thread: StartThread = spawn
    uniform: Uniform = random.random


SYSTEM_ENVIRONMENT = ConsumerEnvironment()


@dataclass(frozen=True, slots=True)
class ConsumerComponents:
    """The parts of one consumer.  ``coordinator`` None: it has no ``group.id``."""

    client_id: str
    client: ConsumerNetworkClient
    metadata: ConsumerMetadata
    subscriptions: SubscriptionState
    fetcher: Fetcher
    coordinator: PolledCoordinator | None
    interceptors: ConsumerInterceptors[Any]
    deserializers: tuple[Deserializer[Any] | None, Deserializer[Any] | None]


def create_components(
    config: KafkaConsumerConfig,
    environment: ConsumerEnvironment,
    oauth_token: Callable[[], str] | None,
) -> ConsumerComponents:
    """All parts.  ``InvalidConfigException``: the configuration, or a class that it names, cannot be used;
    ``KafkaException``: something else has failed, which is its cause."""
    with contextlib.ExitStack() as opened:
        try:
            made = _create(config, environment, oauth_token, opened)
        except InvalidConfigException:
            raise
        except (ZkConsumerError, OSError) as error:
            raise KafkaException(f"the consumer could not be created: {error}") from error
        opened.pop_all()
    return made


def _create(
    config: KafkaConsumerConfig,
    environment: ConsumerEnvironment,
    oauth_token: Callable[[], str] | None,
    opened: contextlib.ExitStack,
) -> ConsumerComponents:
    clock = environment.clock
    client_id = config.client_id or _new_client_id(config)
    values = {**config.originals, "client.id": client_id}
    for key, why in config.ignored.items():
        if key in KEYS_WITHOUT_EFFECT:
            log.warning("setting-ignored: %s has no effect reason=%r", key, why)
            continue
        log.warning(
            "setting-ignored: The configuration '%s' was supplied but isn't a known config. reason=%r", key, why
        )
    interceptors = load_interceptors(config.interceptor_classes, values)
    opened.callback(interceptors.close)
    key_deserializer = _deserializer(config.key_deserializer, values, opened, is_key=True)
    value_deserializer = _deserializer(config.value_deserializer, values, opened, is_key=False)
    deserializers = key_deserializer, value_deserializer
    listeners: list[Any] = [
        one for one in (*interceptors.all, *deserializers) if callable(getattr(one, "on_update", None))
    ]
    subscriptions = SubscriptionState(OffsetResetStrategy(config.auto_offset_reset))
    metadata = _metadata(config, subscriptions, listeners)
    kafka_client = environment.new_kafka_client(config, client_id, metadata, clock, oauth_token)
    opened.callback(kafka_client.close)
    client = ConsumerNetworkClient(
        kafka_client,
        metadata,
        clock,
        retry_backoff_ms=config.retry_backoff_ms,
        request_timeout_ms=config.request_timeout_ms,
        max_poll_timeout_ms=config.heartbeat_interval_ms,
    )
    fetcher = Fetcher(
        client,
        metadata,
        subscriptions,
        _fetch_config(config),
        clock,
        key_deserializer=deserializers[0],
        value_deserializer=deserializers[1],
    )
    coordinator = None
    if config.group_id is not None:
        assignors = create_assignors(config.partition_assignment_strategy, values)
        machine = ConsumerCoordinator(group_config(config), assignors, environment.uniform, clock.now_ms())
        coordinator = PolledCoordinator(
            machine,
            client,
            metadata,
            subscriptions,
            clock,
            interceptors=interceptors,
            name=client_id,
            start_thread=environment.start_thread,
        )
    return ConsumerComponents(
        client_id, client, metadata, subscriptions, fetcher, coordinator, interceptors, deserializers
    )


def _new_client_id(config: KafkaConsumerConfig) -> str:
    """As in Java: the group and the static member, or a number that is new in this process."""
    if config.group_id is None:
        return f"consumer-{next(_numbers)}"
    return f"consumer-{config.group_id}-{config.group_instance_id or next(_numbers)}"


def _deserializer(
    setting: Any, values: Mapping[str, Any], opened: contextlib.ExitStack, *, is_key: bool
) -> Deserializer[Any] | None:
    if setting is None:
        return None
    made = load_deserializer(setting, values, is_key=is_key)
    opened.callback(close_deserializers, [made])
    return made


def close_deserializers(deserializers: Sequence[Deserializer[Any] | None]) -> None:
    """Call ``close`` of those that have it; an exception is logged."""
    for one in deserializers:
        close = getattr(one, "close", None)
        if callable(close):
            try:
                close()
            except Exception:
                log.exception("deserializer-not-closed class=%s", type(one).__qualname__)


def group_config(config: KafkaConsumerConfig) -> GroupMemberConfig:
    """The settings of the group's machine."""
    values = {key: config.values[key] for key in GROUP_SETTINGS}
    return GroupMemberConfig({key: value for key, value in values.items() if value is not None})


def _metadata(
    config: KafkaConsumerConfig, subscriptions: SubscriptionState, listeners: Sequence[ClusterResourceListener]
) -> ConsumerMetadata:
    metadata = ConsumerMetadata(
        config.retry_backoff_ms,
        config.metadata_max_age_ms,
        subscriptions,
        include_internal_topics=not config.exclude_internal_topics,
        allow_auto_topic_creation=config.allow_auto_create_topics,
        listeners=listeners,
    )
    assert config.bootstrap_servers is not None, "it is required"
    servers = [(broker.host, broker.port) for broker in BootstrapBrokers(config.bootstrap_servers).brokers()]
    metadata.bootstrap(bootstrap_addresses(servers, config.client_dns_lookup))
    return metadata


def _fetch_config(config: KafkaConsumerConfig) -> FetchConfig:
    return FetchConfig(
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_wait_ms=config.fetch_max_wait_ms,
        fetch_size=config.max_partition_fetch_bytes,
        max_poll_records=config.max_poll_records,
        check_crcs=config.check_crcs,
        client_rack_id=config.client_rack or "",
        isolation_level=IsolationLevel.of_setting(config.isolation_level),
        retry_backoff_ms=config.retry_backoff_ms,
        request_timeout_ms=config.request_timeout_ms,
    )
