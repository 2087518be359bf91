"""Listeners with TLS and SASL beside the PLAINTEXT one of a sandbox broker, and users for them.

    security = Security()
    broker = sandbox.start_broker("3.9.1", security=security)
    security.settings("SASL_SSL", "SCRAM-SHA-512")     # what a consumer needs; its port is security.port("SASL_SSL")

The brokers speak PLAINTEXT with each other and with the sandbox.  Users exist in ZooKeeper before the broker starts,
or are written when the storage of a KRaft broker is formatted.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

import scramp

from zkconsumer.kafka.sasl_mechanisms import SCRAM_MECHANISMS
from zkconsumer.testing.sandbox.certificates import PASSWORD, Certificates, certificates
from zkconsumer.testing.sandbox.waiting import HOST, free_port

USER, USER_PASSWORD = "alice", "alice-password"

LISTENERS = {"SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL", "MUTUAL": "SSL"}
"""Listener name -> security protocol; MUTUAL wants a certificate of the client."""

JAAS_SETTINGS_FROM = (1, 1)

_MODULES = {
    "plain": f'plain.PlainLoginModule required user_{USER}="{USER_PASSWORD}"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"',
}


@dataclass(slots=True)
class SandboxSecurity:
    """For one broker.  ``keystore`` is its own; ``mechanisms`` are those of both SASL listeners."""

    keystore: Path | None = None
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    broker_settings: dict[str, str] = field(default_factory=dict)
    certificates: Certificates = field(default_factory=certificates)
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in LISTENERS})

    def port(self, listener: str) -> int:
        """Where a listener listens."""
        return self.ports[listener]

    def address(self, listener: str) -> str:
        """host:port."""
        return f"{HOST}:{self.ports[listener]}"

    def settings(self, protocol: str, mechanism: str | None = None) -> dict[str, str]:
        """The keys that a consumer needs for a listener of this protocol."""
        settings = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings["ssl.truststore.location"] = str(self.certificates.ca)
        if mechanism is not None:
            settings["sasl.mechanism"] = mechanism
            if mechanism in ("PLAIN", *SCRAM_MECHANISMS):
                settings |= {"sasl.username": USER, "sasl.password": USER_PASSWORD}
        return settings

    def apply_to(self, settings: dict[str, str]) -> dict[str, str]:
        """A broker's settings with these listeners as well."""
        places = [f"{name}://{HOST}:{port}" for name, port in self.ports.items()]
        mapped = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
        names = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
        added = {
            "listeners": ",".join([settings["listeners"], *places]),
            "advertised.listeners": ",".join([settings["advertised.listeners"], *places]),
            "listener.security.protocol.map": f"{mapped},{names}",
            "ssl.keystore.location": str(self.keystore or self.certificates.broker),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.keystore.type": "PKCS12",
            "ssl.truststore.location": str(self.certificates.truststore),
            "ssl.truststore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(self.mechanisms),
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            for mechanism in map(str.lower, self.mechanisms):
                line = f"org.apache.kafka.common.security.{_MODULES[mechanism]};"
                added[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = line
        return settings | added | self.broker_settings

    def options(self, version: tuple[int, ...], folder: Path) -> tuple[str, ...]:
        """Options for the JVM: before 1.1 the logins are in a file of Java's, not in the broker's settings."""
        if version >= JAAS_SETTINGS_FROM:
            return ()
        file = folder / "jaas.conf"
        file.parent.mkdir(parents=True, exist_ok=True)
        modules = dict.fromkeys(_MODULES[mechanism.lower()] for mechanism in self.mechanisms)
        lines = "".join(f"  org.apache.kafka.common.security.{module};\n" for module in modules)
        file.write_text(f"KafkaServer {{\n{lines}}};\n")
        return (f"-Djava.security.auth.login.config={file}",)

    def users(self) -> dict[str, bytes]:
        """Znode -> data, below the chroot: the users of SCRAM."""
        config = {}
        for mechanism in SCRAM_MECHANISMS:
            salt, stored, server, iterations = scramp.ScramMechanism(mechanism).make_auth_info(USER_PASSWORD)
            config[mechanism] = (
                f"salt={_base64(salt)},stored_key={_base64(stored)},server_key={_base64(server)},iterations={iterations}"
            )
        return {f"/config/users/{USER}": json.dumps({"version": 1, "config": config}).encode()}

    def format_arguments(self) -> tuple[str, ...]:
        """The arguments for ``StorageTool format`` that create the users of SCRAM."""
        return tuple(
            word
            for mechanism in SCRAM_MECHANISMS
            for word in ("--add-scram", f"{mechanism}=[name={USER},password={USER_PASSWORD}]")
        )


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
