"""A real broker without ZooKeeper (3.9.1, 4.1.1): broker and controller in one process, one of them a cluster."""

from __future__ import annotations

from typing import Unpack

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.broker_process import BrokerOptions, BrokerProcess
from zkconsumer.testing.sandbox.child_process import JavaCommand, write_properties
from zkconsumer.testing.sandbox.probe import metadata
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.tools import run_tool
from zkconsumer.testing.sandbox.waiting import HOST, free_port
from zkconsumer.testing.sandbox.zookeeper_mode_broker import CLUSTER_ID, COMMON_SETTINGS

KRAFT_FROM = (3, 9)


class KraftBroker(BrokerProcess):
    """``settings`` are added to server.properties, or replace its lines; ``security`` adds listeners."""

    def __init__(
        self, run: SandboxRun, release: str = "4.1.1", broker_id: int = 0, **options: Unpack[BrokerOptions]
    ) -> None:
        super().__init__(run, release, broker_id, **options)
        if self.artifacts.version < KRAFT_FROM:
            raise SandboxError(f"Kafka {release} is run with ZooKeeper here; take Broker")
        self._controller_port = free_port()

    def start(self) -> None:
        """As ``ServerProcess.start``; the first time the storage is formatted."""
        data = self.run.root / self.name / "data"
        if not (data / "meta.properties").exists():
            # Formatting reads no port, but checks that the configuration is whole.
            (config,) = self.command(self.port or free_port()).arguments
            users = self.security.format_arguments() if self.security is not None else ()
            words = ("format", "-t", CLUSTER_ID, "-c", config, *users)
            result = run_tool(self.run, self.release, "kafka.tools.StorageTool", words)
            if result.code != 0:
                raise SandboxError(f"{self.name}: the storage could not be formatted: {result.out}{result.err}")
        super().start()

    def command(self, port: int) -> JavaCommand:
        folder = self.run.root / self.name
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(self.broker_id),
            "controller.quorum.voters": f"{self.broker_id}@{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(folder / "data"),
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker may register again when its session has ended; by default that takes nine seconds.
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "2000",
            **{key: value for key, value in COMMON_SETTINGS.items() if not key.startswith("zookeeper.")},
            **self._settings,
        }
        if self.security is not None:
            settings = self.security.apply_to(settings)
        config = write_properties(settings, folder / "server.properties")
        return JavaCommand(self.release, "kafka.Kafka", (str(config),), heap_mb=self._heap_mb)

    def is_up(self, port: int) -> bool:
        answer = metadata(port)
        return answer is not None and answer.brokers.get(self.broker_id) == (HOST, port)
