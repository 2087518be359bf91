"""A ZooKeeper 3.8 with SASL (DIGEST-MD5) and a port for TLS, its certificate made on the spot, and a broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import Sandbox, zookeeper_release
from zkconsumer.testing.sandbox.waiting import HOST, free_port

USER, PASSWORD = "alice", "secret"
STORE_PASSWORD = "changeit"
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
KEYTOOL_TIMEOUT_S = 60


@dataclass(frozen=True)
class Secured:
    """``jaas`` is a Java option, for servers and for original members alike."""

    cluster: Sandbox
    folder: Path
    tls_port: int

    @property
    def chroot(self) -> str:
        return self.cluster.chroot

    @property
    def plain(self) -> str:
        """What stands in ``zookeeper.connect`` without TLS."""
        return self.cluster.zookeeper_connect

    @property
    def tls(self) -> str:
        """The same, with TLS."""
        return f"{HOST}:{self.tls_port}{self.chroot}"

    @property
    def authority(self) -> str:
        """The file with the server's own certificate."""
        return str(self.folder / "ca.pem")

    @property
    def jaas(self) -> str:
        return f"-Djava.security.auth.login.config={self.folder / 'jaas.conf'}"

    def secret(self, name: str, text: str) -> str:
        """A file that only its user may read."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return str(path)


def keytool(folder: Path, *words: str) -> str:
    """What ``keytool`` prints."""
    done = subprocess.run(
        ["keytool", *words, "-storepass", STORE_PASSWORD],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=KEYTOOL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_certificate(folder: Path) -> None:
    """A key and a certificate for this machine that signs itself: ``server.p12`` and ``ca.pem``."""
    store = ["-alias", "server", "-keystore", "server.p12"]
    keytool(
        folder, "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1",
        "-validity", "30", "-dname", "CN=server", "-ext", f"san=ip:{HOST},dns:localhost",
    )  # fmt: skip
    (folder / "ca.pem").write_text(keytool(folder, "-exportcert", "-rfc", *store))


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One for the whole session; take groups and topics of your own."""
    require_releases("1.1.1", zookeeper_release("3.8"))
    folder = tmp_path_factory.mktemp("secured")
    make_certificate(folder)
    (folder / "jaas.conf").write_text(
        f'Server {{ {LOGIN_MODULE} required user_{USER}="{PASSWORD}"; }};\n'
        f'Client {{ {LOGIN_MODULE} required username="{USER}" password="{PASSWORD}"; }};\n'
    )
    with Sandbox() as cluster:
        made = Secured(cluster, folder, free_port())
        cluster.start_zookeeper(
            settings={
                "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "secureClientPort": str(made.tls_port),
                "ssl.keyStore.location": str(folder / "server.p12"),
                "ssl.keyStore.password": STORE_PASSWORD,
                "ssl.clientAuth": "none",
            },
            options=(made.jaas, f"-Dzookeeper.serverCnxnFactory={NETTY}"),
        )
        cluster.start_broker("1.1.1", chroot="/kafka")
        yield made
