"""The common part of a broker on a ZooKeeper and of one without."""

from __future__ import annotations

from typing import TypedDict, Unpack

from zkconsumer.testing.sandbox.artifacts import artifact_set
from zkconsumer.testing.sandbox.probe import ClusterMetadata, metadata
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.sandbox_security import SandboxSecurity
from zkconsumer.testing.sandbox.server_process import ServerProcess


class BrokerStartOptions(TypedDict, total=False):
    """``settings`` are added to server.properties, or replace its lines; ``security`` adds listeners.

    ``heap_mb``: 256 without a value.
    """

    settings: dict[str, str] | None
    heap_mb: int
    security: SandboxSecurity | None


class BrokerOptions(BrokerStartOptions, total=False):
    """``name``: ``broker-<id>`` without a value.  ``outlives_parent``: it runs on when this process ends."""

    name: str | None
    outlives_parent: bool


class BrokerProcess(ServerProcess):
    """A broker; see ``BrokerOptions``."""

    kind = "broker"
    start_timeout_ms = 90_000
    stop_timeout_ms = 20_000
    chroot = ""

    def __init__(self, run: SandboxRun, release: str, broker_id: int, **options: Unpack[BrokerOptions]) -> None:
        name = options.get("name") or f"broker-{broker_id}"
        super().__init__(run, name, outlives_parent=options.get("outlives_parent", False))
        self.artifacts = artifact_set(release)
        self.release = release
        self.broker_id = broker_id
        self.security = options.get("security")
        self._settings = options.get("settings") or {}
        self._heap_mb = options.get("heap_mb", 256)

    def metadata(self) -> ClusterMetadata | None:
        """This broker's answer to Metadata; None if it does not answer."""
        return metadata(self.port)
