"""Client libraries of every kind in one group, on real brokers of every age and on ours: every change, one judgement.

A scenario is one group that lives through all changes.  After each of them every partition is held by exactly one
member; at the end nothing was lost, and nothing repeated without its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.testing.embedded_broker import EmbeddedBroker
from tests.coordinator_group_fixtures import ModernClusters
from tests.interop.probe.probed_broker import Probe, Server
from tests.lab.coordinator_lab import CoordinatorGroupLab
from tests.lab.coordinator_member import JAVA, OURS, OURS_POLL
from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import ProducerProcess, Sandbox
from zkconsumer.testing.sandbox.waiting import HOST

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]

PARTITIONS = 7
PER_SECOND = 200

C, PYTHON = "confluent", "kafka-python"
PATIENT = {"session.timeout.ms": "10000"}
"""Longer than a broker takes to restart."""

BEFORE_0_10 = {
    C: {"api.version.request": "false", "broker.version.fallback": "0.9.0.1"},
    PYTHON: {"api.version": "0.9"},
    OURS: {"api.version.request": "false"},
    OURS_POLL: {"api.version.request": "false"},
}
"""Settings for clients of a broker that does not support ApiVersions: it would drop the other requests."""


def scenario(broker: str, *clients: str, strategy: str = "range", nightly: bool = True) -> object:
    marks = [pytest.mark.nightly] if nightly else []
    name = "-".join([broker, strategy, *(client.removeprefix(JAVA) for client in clients)])
    return pytest.param(broker, clients, strategy, marks=marks, id=name)


# No cooperative-sticky with librdkafka and Java 2.8.1 to 3.3 in one group: librdkafka sends no generation with its
# partitions.  Java's leader then takes them for free ones, and another member reads them before they are revoked.
SCENARIOS = [
    scenario("3.9.1", "java-3.9.1", C, PYTHON),
    scenario("3.9.1", "java-0.9.0.1", "java-2.8.2", "java-4.1.1"),
    scenario("3.9.1", "java-4.1.1", C, PYTHON, strategy="roundrobin"),
    scenario("3.9.1", "java-2.8.2", OURS, "java-3.9.1", strategy="cooperative-sticky"),
    scenario("3.9.1", "java-3.9.1", C, "java-4.1.1", strategy="cooperative-sticky"),
    scenario("1.1.1", "java-0.9.0.1", C, PYTHON),
    scenario("1.1.1", "java-2.8.2", C, "java-3.9.1", strategy="roundrobin"),
    scenario("0.11.0.3", "java-0.9.0.1", "java-2.8.2", C),
    scenario("0.11.0.3", "java-3.9.1", PYTHON, C),
    scenario("0.9.0.1", "java-0.9.0.1", C, PYTHON),
    scenario("4.1.1", "java-2.8.2", "java-3.9.1", "java-4.1.1"),
    scenario("4.1.1", "java-4.1.1", C, PYTHON),
    scenario("4.1.1", "java-4.1.1", C, "java-3.9.1", strategy="cooperative-sticky"),
    scenario("3.9.1", OURS, "java-3.9.1", C),
    scenario("3.9.1", C, OURS, "java-3.9.1", strategy="cooperative-sticky"),
    scenario("1.1.1", OURS, "java-0.9.0.1", PYTHON),
    scenario("0.11.0.3", OURS, "java-2.8.2", C, strategy="roundrobin"),
    scenario("0.9.0.1", "java-0.9.0.1", OURS, C),
    scenario("4.1.1", OURS, "java-4.1.1", PYTHON),
    scenario("3.9.1", OURS_POLL, "java-3.9.1", OURS, strategy="cooperative-sticky", nightly=False),
    scenario("3.9.1", "java-2.8.2", OURS_POLL, "java-3.9.1", strategy="sticky"),
    scenario("1.1.1", OURS_POLL, C, OURS_POLL, nightly=False),
    scenario("0.11.0.3", OURS_POLL, "java-0.9.0.1", OURS, strategy="roundrobin"),
    scenario("0.9.0.1", OURS_POLL, "java-0.9.0.1", C),
    scenario("4.1.1", "java-4.1.1", OURS_POLL, PYTHON),
]


def settings_of(broker: str, client: str) -> dict[str, str]:
    return BEFORE_0_10.get(client, {}) if broker.startswith("0.9") else {}


def require_clients(clients: tuple[str, ...]) -> None:
    """The Java ones can be had here."""
    require_releases(*(client.removeprefix(JAVA) for client in clients if client.startswith(JAVA)))


def live_through(lab: CoordinatorGroupLab, broker: str, clients: tuple[str, ...], move: Callable[[], None]) -> None:
    """One group through every change; ``move``: another broker becomes its coordinator, or it restarts."""

    def start(name: str, client: str) -> None:
        lab.start(name, client, settings=PATIENT | settings_of(broker, client))

    first, second, third = clients
    [topic] = lab.topics
    lab.load(topic, PER_SECOND)
    with lab.change("the first member comes"):
        start("first", first)
    with lab.change("two others join at once"):
        start("second", second)
        start("third", third)
    with lab.change("the first member leaves"):
        lab.leave("first")
    with lab.change("it comes again, in a new process"):
        start("first-again", first)
    with lab.change("the second member is killed"):
        lab.kill("second")
    lab.halt()
    with lab.change("the coordinator moves"):
        move()
    lab.load(topic, PER_SECOND)
    with lab.change("the second member comes again, in a new process"):
        start("second-again", second)
    lab.finish()
    print(lab.report())


@pytest.mark.parametrize(("broker", "clients", "strategy"), SCENARIOS)
def test_a_group_of_several_libraries_passes_every_change(
    broker: str,
    clients: tuple[str, ...],
    strategy: str,
    modern_clusters: ModernClusters,
    names: tuple[str, str],
    tmp_path: Path,
) -> None:
    require_clients(clients)
    cluster = modern_clusters.get(broker)
    group, topic = names
    cluster.create_topic(topic, PARTITIONS)

    def die_and_come_back() -> None:
        [server] = cluster.brokers
        server.kill()
        server.start()

    with CoordinatorGroupLab(
        cluster.run, cluster.bootstrap, cluster.producer, group, {topic: PARTITIONS}, folder=tmp_path, strategy=strategy
    ) as lab:
        live_through(lab, broker, clients, die_and_come_back)


REPLICATED = {"offsets.topic.replication.factor": "2", "offsets.topic.num.partitions": "4"}

TWO_BROKERS = [
    pytest.param("3.9.1", ("java-3.9.1", C, OURS), id="3.9.1"),
    pytest.param("3.9.1", (OURS_POLL, "java-3.9.1", OURS_POLL), id="3.9.1-poll"),
    pytest.param("1.1.1", ("java-0.9.0.1", C, PYTHON), id="1.1.1"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("broker", "clients"), TWO_BROKERS)
def test_another_broker_takes_a_group_over_when_its_coordinator_is_killed(
    broker: str, clients: tuple[str, ...], sandbox: Sandbox, names: tuple[str, str], tmp_path: Path
) -> None:
    require_clients(clients)
    require_releases(broker)
    group, topic = names
    sandbox.start_zookeeper()
    settings = REPLICATED | {"zookeeper.session.timeout.ms": "6000"}
    servers = [sandbox.start_broker(broker, chroot="/kafka", settings=settings) for _ in range(2)]
    sandbox.create_topic(topic, PARTITIONS, replicas={n: [n % 2, 1 - n % 2] for n in range(PARTITIONS)})

    def kill_the_coordinator() -> None:
        probe = Probe(Server(broker, HOST, servers[0].port, topic, is_kraft=False, is_real=True), group)
        _, _, port = probe.find_coordinator()
        probe.close()
        [coordinator] = [server for server in servers if server.port == port]
        coordinator.kill()

    with CoordinatorGroupLab(
        sandbox.run, sandbox.bootstrap, sandbox.producer, group, {topic: PARTITIONS}, folder=tmp_path
    ) as lab:
        live_through(lab, broker, clients, kill_the_coordinator)


EMULATED = [
    scenario("3.9.1", "java-3.9.1", C, PYTHON, nightly=False),
    scenario("3.9.1", "java-0.9.0.1", "java-2.8.2", "java-4.1.1"),
    scenario("3.9.1", OURS, C, OURS, strategy="cooperative-sticky"),
    scenario("3.9.1", "java-4.1.1", C, "java-2.8.2", strategy="cooperative-sticky"),
    scenario("0.9.0.1", "java-0.9.0.1", C, PYTHON),
    scenario("0.11.0.3", "java-0.9.0.1", "java-2.8.2", C),
    scenario("1.1.1", "java-2.8.2", "java-3.9.1", PYTHON, strategy="roundrobin"),
    scenario("4.1.1", "java-4.1.1", C, PYTHON),
    scenario("4.1.1", "java-2.8.2", "java-3.9.1", "java-4.1.1", strategy="roundrobin"),
]


@pytest.mark.parametrize(("broker", "clients", "strategy"), EMULATED)
def test_a_group_of_several_libraries_passes_every_change_on_our_broker(
    broker: str, clients: tuple[str, ...], strategy: str, names: tuple[str, str], tmp_path: Path
) -> None:
    require_clients(clients)
    group, topic = names
    with Sandbox() as sandbox, EmbeddedBroker(release=broker, nodes=3) as ours:
        ours.create_topic(topic, PARTITIONS)
        load = ProducerProcess(sandbox.run, "0.9.0.1" if broker.startswith("0.9") else "2.8.2", ours.bootstrap)

        def move() -> None:
            before = ours.coordinator(group)
            assert before is not None
            ours.move_coordinator(group, (before + 1) % 3, loading_ms=300)

        try:
            with CoordinatorGroupLab(
                sandbox.run, ours.bootstrap, load, group, {topic: PARTITIONS}, folder=tmp_path, strategy=strategy
            ) as lab:
                live_through(lab, broker, clients, move)
        finally:
            load.close()
