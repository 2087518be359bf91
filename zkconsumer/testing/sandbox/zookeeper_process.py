"""A real ZooKeeper server, alone."""

from __future__ import annotations

from zkconsumer.testing.sandbox.artifacts import zookeeper_release
from zkconsumer.testing.sandbox.child_process import JavaCommand, write_properties
from zkconsumer.testing.sandbox.probe import zookeeper_version
from zkconsumer.testing.sandbox.sandbox_runs import SandboxRun
from zkconsumer.testing.sandbox.server_process import ServerProcess
from zkconsumer.testing.sandbox.waiting import HOST
from zkconsumer.testing.sandbox.zookeeper_admin import ZooKeeperAdmin

TICK_MS = 1000  # the shortest session is twice this

# It does not wait for the disk: a test kills the process, never the machine.
OPTIONS = ("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.extendedTypesEnabled=true")


class ZooKeeperServer(ServerProcess):
    """Version "3.8" (from Kafka 3.9.1) or "3.4.6" (from Kafka 0.8.2.2, what users of these groups have)."""

    kind = "zookeeper"
    start_timeout_ms = 60_000
    stop_timeout_ms = 5_000

    def __init__(
        self,
        run: SandboxRun,
        version: str = "3.8",
        *,
        name: str = "zookeeper",
        settings: dict[str, str] | None = None,
        options: tuple[str, ...] = (),
        heap_mb: int = 128,
        outlives_parent: bool = False,
    ) -> None:
        super().__init__(run, name, outlives_parent=outlives_parent)
        self.version = version
        self._release = zookeeper_release(version)
        self._settings = settings or {}
        self._options = options
        self._heap_mb = heap_mb
        self._admins: dict[str, ZooKeeperAdmin] = {}

    def connect_string(self, chroot: str = "") -> str:
        """The value for ``zookeeper.connect``."""
        return self.address + chroot

    def admin(self, chroot: str = "") -> ZooKeeperAdmin:
        """A session for reads and changes, opened on first use; the chroot need not exist."""
        if chroot not in self._admins:
            if chroot:
                self.admin().ensure_path(chroot)
            self._admins[chroot] = ZooKeeperAdmin(self.connect_string(chroot))
        return self._admins[chroot]

    def close(self, *, graceful: bool = True) -> None:
        """Ends the sessions of ``admin``, then stops or kills the server."""
        if self.is_running():
            self.resume()  # closing a session asks the server
        self.close_admins()
        if self.is_running() and not graceful:
            self.kill()
        self.stop()

    def close_admins(self) -> None:
        """Ends the sessions of ``admin``."""
        for admin in self._admins.values():
            admin.close()
        self._admins.clear()

    def command(self, port: int) -> JavaCommand:
        folder = self.run.root / self.name
        settings = {
            "tickTime": str(TICK_MS),
            "dataDir": str(folder / "data"),
            "clientPort": str(port),
            "clientPortAddress": HOST,
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "*",
            **self._settings,
        }
        config = write_properties(settings, folder / "zookeeper.properties")
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        options = (*OPTIONS, *self._options)
        return JavaCommand(self._release, main, (str(config),), heap_mb=self._heap_mb, options=options)

    def is_up(self, port: int) -> bool:
        return zookeeper_version(port) is not None
