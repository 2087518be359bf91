"""A real broker on a ZooKeeper, of any release that knows ZooKeeper."""

from __future__ import annotations

import json
from typing import Unpack

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox.broker_process import BrokerOptions, BrokerProcess
from zkconsumer.testing.sandbox.child_process import JavaCommand, write_properties
from zkconsumer.testing.sandbox.probe import metadata
from zkconsumer.testing.sandbox.waiting import HOST
from zkconsumer.testing.sandbox.zookeeper_process import ZooKeeperServer

# Any 22 characters base64url.  A broker of 0.10.1 or later that finds an id does not make one.
CLUSTER_ID = "zkconsumerSandbox-0001"


class ZooKeeperModeBroker(BrokerProcess):
    """``settings`` are added to server.properties, or replace its lines; ``security`` adds listeners."""

    def __init__(
        self,
        release: str,
        zookeeper: ZooKeeperServer,
        chroot: str = "",
        broker_id: int = 0,
        **options: Unpack[BrokerOptions],
    ) -> None:
        super().__init__(zookeeper.run, release, broker_id, **options)
        if not self.artifacts.has_zookeeper_mode:
            raise SandboxError(f"a broker of Kafka {release} does not know ZooKeeper; take KraftBroker")
        self.zookeeper = zookeeper
        self.chroot = chroot

    def start(self) -> None:
        """As ``ServerProcess.start``, on a chroot that exists and without the traces of a killed predecessor."""
        admin = self.zookeeper.admin(self.chroot)
        if admin.exists(f"/brokers/ids/{self.broker_id}"):
            # The session of a killed broker lives on for its time-out, and some releases refuse to start meanwhile.
            admin.forget_broker(self.broker_id)
        if not admin.exists("/cluster/id"):
            admin.put("/cluster/id", json.dumps({"version": "1", "id": CLUSTER_ID}).encode())
        for path, data in (self.security.users() if self.security is not None else {}).items():
            admin.put(path, data)
        super().start()

    def command(self, port: int) -> JavaCommand:
        folder = self.run.root / self.name
        settings = {
            "broker.id": str(self.broker_id),
            "zookeeper.connect": self.zookeeper.connect_string(self.chroot),
            "log.dirs": str(folder / "data"),
            **_listening(self.artifacts.version, port),
            **COMMON_SETTINGS,
            **({"group.initial.rebalance.delay.ms": "0"} if self.artifacts.version >= (0, 11) else {}),
            **self._settings,
        }
        if self.security is not None:
            settings = self.security.apply_to(settings)
        config = write_properties(settings, folder / "server.properties")
        options = self.security.options(self.artifacts.version, folder) if self.security is not None else ()
        return JavaCommand(self.release, "kafka.Kafka", (str(config),), heap_mb=self._heap_mb, options=options)

    def is_up(self, port: int) -> bool:
        answer = metadata(port)
        if answer is not None and not answer.brokers and self.artifacts.version < (0, 9):
            # Until there is a topic, 0.8 knows of no broker, not even itself.
            return self.broker_id in self.zookeeper.admin(self.chroot).broker_ids()
        return answer is not None and answer.brokers.get(self.broker_id) == (HOST, port)


COMMON_SETTINGS = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.index.size.max.bytes": "1048576",
    # By default a broker deletes records whose timestamps are older than a week, and many samples have such timestamps.
    "log.retention.hours": "87600",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "zookeeper.connection.timeout.ms": "30000",
    "zookeeper.session.timeout.ms": "30000",
}
"""Settings that every release takes; those that it does not know it only warns of."""


def _listening(version: tuple[int, ...], port: int) -> dict[str, str]:
    if version < (0, 9):
        names = ("host.name", "advertised.host.name"), ("port", "advertised.port")
        return {**dict.fromkeys(names[0], HOST), **dict.fromkeys(names[1], str(port))}
    return {"listeners": f"PLAINTEXT://{HOST}:{port}", "advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
