"""An authority, and certificates of it, made at run time with the JDK's ``keytool``.

Kept in the cache as long as the source of this file does not change: to make them takes some seconds.  They are for
servers on 127.0.0.1, and no other program trusts them.
"""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache, java

PASSWORD = "sandbox-password"
"""Of every keystore; their files are in the cache of the sandbox's user."""

VALID_DAYS = "3650"
KEYTOOL_TIMEOUT_S = 60
LOCALHOST = "san=ip:127.0.0.1,dns:localhost"
OTHER_HOST = "san=dns:broker.elsewhere.invalid"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths.  ``.p12`` files are for Java, with ``PASSWORD``; ``.pem`` files for this program."""

    folder: Path

    @property
    def truststore(self) -> Path:
        """The authority, for Java."""
        return self.folder / "trust.p12"

    @property
    def ca(self) -> Path:
        """The authority."""
        return self.folder / "ca.pem"

    @property
    def other_ca(self) -> Path:
        """An authority that signed nothing here."""
        return self.folder / "other-ca.pem"

    @property
    def broker(self) -> Path:
        """Key and certificate for 127.0.0.1 and localhost, for Java."""
        return self.folder / "broker.p12"

    @property
    def wrong_host(self) -> Path:
        """Key and certificate for a host that this is not, for Java."""
        return self.folder / "elsewhere.p12"

    @property
    def expired(self) -> Path:
        """Key and certificate for 127.0.0.1 that are of no use any more, for Java."""
        return self.folder / "expired.p12"

    @property
    def client(self) -> Path:
        """Key and certificate of a client, CN=client."""
        return self.folder / "client.pem"


def certificates() -> Certificates:
    """Those of the cache, made if need be.  ``SandboxError``: no JDK, or keytool refuses."""
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    target = cache.folder("certificates") / digest
    if not target.is_dir():
        with cache.atomic_folder(target) as folder:
            _make(folder)
    return Certificates(target)


def _make(folder: Path) -> None:
    for authority in ("ca", "other-ca"):
        store = folder / f"{authority}.p12"
        _keytool(
            "-genkeypair", "-keyalg", "EC", "-alias", "ca", "-dname", f"CN=sandbox {authority}", "-ext", "bc:c",
            "-validity", VALID_DAYS, "-keystore", store,
        )  # fmt: skip
        _keytool("-exportcert", "-rfc", "-alias", "ca", "-keystore", store, "-file", folder / f"{authority}.pem")
    _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", folder / "ca.pem", "-keystore", folder / "trust.p12")
    _signed(folder, "broker", "-ext", LOCALHOST)
    _signed(folder, "elsewhere", "-ext", OTHER_HOST)
    _signed(folder, "expired", "-ext", LOCALHOST, "-startdate", "-30d", "-validity", "10")
    _signed(folder, "client")
    classes = java.compiled(("Pem",), None)
    _run([java.find_jdk().java, "-cp", classes, "Pem", folder / "client.p12", PASSWORD, "own", folder / "client.pem"])


def _signed(folder: Path, name: str, *extra: str) -> None:
    """A key in ``name.p12`` whose certificate the authority signed."""
    store, request, reply = (folder / f"{name}.{ending}" for ending in ("p12", "csr", "crt"))
    _keytool("-genkeypair", "-keyalg", "EC", "-alias", "own", "-dname", f"CN={name}", "-keystore", store)
    _keytool("-certreq", "-alias", "own", "-keystore", store, "-file", request)
    _keytool(
        "-gencert", "-alias", "ca", "-keystore", folder / "ca.p12", "-infile", request, "-outfile", reply,
        "-validity", VALID_DAYS, *extra,
    )  # fmt: skip
    _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", folder / "ca.pem", "-keystore", store)
    _keytool("-importcert", "-noprompt", "-alias", "own", "-file", reply, "-keystore", store)


def _keytool(*arguments: str | Path) -> None:
    keytool = Path(java.find_jdk().java).with_name("keytool")
    store_type = () if "-gencert" in arguments else ("-storetype", "PKCS12")
    _run([keytool, *java.TOOL_FAST_START, *arguments, *store_type, "-storepass", PASSWORD])


def _run(command: list[str | Path]) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=KEYTOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"certificates cannot be made: {words[0]}: {error}") from error
    if done.returncode != 0:
        raise SandboxError(f"certificates cannot be made: {' '.join(words[:4])}: {(done.stdout + done.stderr)[-1000:]}")
