"""``zkconsumer sandbox up``, ``status``, ``down``: the one cluster that runs on after the command that started it.

Its brokers have Kafka's default ``auto.create.topics.enable=true``, because clients expect it: without it a console
producer waits ``max.block.ms``, a minute, for each line to a topic that does not exist.  (The brokers of ``Sandbox`` in
tests create no topic on request, so that a test detects a wrong name.)

<cache>/cluster.json contains the folder of its run and its addresses.  Until ``up`` has started everything, the run
belongs to that command: if the command is interrupted, the next run stops the processes and removes the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache, sandbox_runs
from zkconsumer.testing.sandbox.probe import metadata, zookeeper_version
from zkconsumer.testing.sandbox.sandbox_cluster import Sandbox
from zkconsumer.testing.sandbox.waiting import wait_until

STOP_TIMEOUT_MS = 20_000

ANSWER_TIMEOUT_MS = 10_000
"""After this time a process that is alive and does not answer is reported."""

BROKER_SETTINGS = {"auto.create.topics.enable": "true"}
ZOOKEEPER, KAFKA = "ZooKeeper ", "Kafka "
"""How ``ClusterProcess.version`` begins."""

RUNNING, NOT_RESPONDING, DEAD = "running", "does not answer", "dead"


@dataclass(frozen=True, slots=True)
class ClusterProcess:
    """One process of the cluster."""

    name: str
    version: str
    address: str
    pid: int

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def is_broker(self) -> bool:
        return self.version.startswith(KAFKA)

    def answers(self) -> bool:
        """Whether the server answers now."""
        return (metadata(self.port) if self.is_broker else zookeeper_version(self.port)) is not None


@dataclass(frozen=True, slots=True)
class BackgroundCluster:
    """The contents of cluster.json."""

    run: str
    root: str
    zookeeper_connect: str
    bootstrap: str
    topics: dict[str, int]
    parts: tuple[ClusterProcess, ...]

    def running(self) -> set[int]:
        """The process ids that are still alive."""
        return {record.pid for record in sandbox_runs.records_of(Path(self.run)) if record.is_alive()}

    def states(self, timeout_ms: int = ANSWER_TIMEOUT_MS) -> dict[str, str]:
        """Name of each process -> RUNNING, NOT_RESPONDING or DEAD; a live process has ``timeout_ms`` to answer."""
        alive = self.running()
        return {
            part.name: DEAD if part.pid not in alive else RUNNING if _answers(part, timeout_ms) else NOT_RESPONDING
            for part in self.parts
        }

    def log(self, part: ClusterProcess) -> Path:
        """The log of the process."""
        return Path(self.root) / part.name / "log.txt"

    @property
    def brokers(self) -> list[ClusterProcess]:
        return [part for part in self.parts if part.is_broker]

    @property
    def release(self) -> str:
        """The Kafka release of the brokers."""
        return self.brokers[0].version.removeprefix(KAFKA)

    @property
    def start_command(self) -> str:
        """The command that starts such a cluster again."""
        [zookeeper] = [part.version.removeprefix(ZOOKEEPER) for part in self.parts if not part.is_broker]
        words = f"zkconsumer sandbox up --kafka {self.release} --zookeeper {zookeeper}"
        if len(self.brokers) > 1:
            words += f" --brokers {len(self.brokers)}"
        _, slash, chroot = self.zookeeper_connect.partition("/")
        if slash:
            words += f" --chroot /{chroot}"
        return words + "".join(f" --topic {topic}:{partitions}" for topic, partitions in self.topics.items())


def up(kafka: str, zookeeper: str, brokers: int, topics: Mapping[str, int], chroot: str = "") -> BackgroundCluster:
    """Start a cluster in the background.  Raises ``SandboxError`` if one is running already."""
    with cache.lock(cache.folder() / ".cluster.lock"):
        present = current()
        if present is not None and present.running():
            raise SandboxError("a sandbox is up already; see 'zkconsumer sandbox status', or take it down first")
        if present is not None:
            _forget(present)
        sandbox = Sandbox(outlives_parent=True)
        try:
            cluster = _started(sandbox, kafka, zookeeper, brokers=brokers, topics=topics, chroot=chroot)
            text = json.dumps(asdict(cluster), indent=1)
            new = _state_file().with_suffix(".new")
            new.write_text(text)
            # In this order: the next "up" deletes a state without a run, but nothing deletes a run without a state.
            new.rename(_state_file())
            sandbox.run.detach()
        except BaseException:
            sandbox.close()
            raise
        sandbox.zookeeper.close_admins()
        return cluster


def current() -> BackgroundCluster | None:
    """The cluster that was started last and not stopped by ``down``, or None; its processes may have ended."""
    try:
        fields = json.loads(_state_file().read_text())
        parts = tuple(ClusterProcess(**part) for part in fields.pop("parts"))
        return BackgroundCluster(**fields, parts=parts)
    except OSError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise SandboxError(f"{_state_file()} cannot be read ({error}); delete it") from error


def down() -> BackgroundCluster | None:
    """Stop the cluster, brokers before ZooKeeper, and remove its files; returns its state before."""
    with cache.lock(cache.folder() / ".cluster.lock"):
        cluster = current()
        if cluster is not None:
            sandbox_runs.end(sandbox_runs.records_of(Path(cluster.run)), STOP_TIMEOUT_MS)
            _forget(cluster)
        return cluster


def _started(
    sandbox: Sandbox, kafka: str, zookeeper: str, *, brokers: int, topics: Mapping[str, int], chroot: str
) -> BackgroundCluster:
    server = sandbox.start_zookeeper(zookeeper)
    parts = [ClusterProcess(server.name, f"{ZOOKEEPER}{zookeeper}", server.address, server.process.pid)]
    for _ in range(brokers):
        broker = sandbox.start_broker(kafka, chroot=chroot, settings=BROKER_SETTINGS)
        parts.append(ClusterProcess(broker.name, f"{KAFKA}{kafka}", broker.address, broker.process.pid))
    for topic, partitions in topics.items():
        sandbox.create_topic(topic, partitions)
    return BackgroundCluster(
        run=str(sandbox.run.folder),
        root=str(sandbox.run.root),
        zookeeper_connect=sandbox.zookeeper_connect,
        bootstrap=sandbox.bootstrap,
        topics=dict(topics),
        parts=tuple(parts),
    )


def _answers(part: ClusterProcess, timeout_ms: int) -> bool:
    try:
        return wait_until(part.answers, f"{part.name} answers", timeout_ms)
    except SandboxError:
        return False


def _forget(cluster: BackgroundCluster) -> None:
    sandbox_runs.remove(Path(cluster.run))
    with suppress(FileNotFoundError):
        _state_file().unlink()


def _state_file() -> Path:
    return cache.folder() / "cluster.json"
