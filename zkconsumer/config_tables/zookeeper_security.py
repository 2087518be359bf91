"""Settings of the ZooKeeper connection: the login, the certificates, and the ACLs of created nodes.  Pure.

The names are those of Kafka's brokers (``zookeeper.set.acl``, ``zookeeper.ssl.…``).  Only this project has
``zookeeper.auth``; it replaces a JAAS file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zkconsumer.config_def import HIDDEN, Origin, SettingsTable, boolean, optional_text, secret, text

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTH_FORMS = "digest:FILE, sasl-digest-md5:FILE, sasl-gssapi or sasl-gssapi:PRINCIPAL"
_AUTH = re.compile(r"(?:digest|sasl-digest-md5):.+|sasl-gssapi(?::.+)?")
_SCHEMES_WITH_FILE = ("digest", "sasl-digest-md5")
_USER_AND_PASSWORD = re.compile(r"[^/:]*:")
"""ZooKeeper's format after the scheme (``addauth digest user:password``).  If the name of a file has a colon, write
its directory, too: ``./a:b``."""
_TLS_KEYS = ("zookeeper.ssl.truststore.location", "zookeeper.ssl.keystore.location", "zookeeper.ssl.keystore.password")


def _check_auth(given: str) -> str:
    scheme, colon, rest = given.partition(":")
    if scheme in _SCHEMES_WITH_FILE and _USER_AND_PASSWORD.match(rest):
        raise ValueError(
            "the value must be the name of a file, and it is user and password: write them into a file, one line "
            "user:password, that only the user of this program may read (chmod 600), and set the file"
        )
    if _AUTH.fullmatch(given) is None:
        if scheme in _SCHEMES_WITH_FILE or re.fullmatch(r"[a-z0-9-]+", scheme) is None:
            raise ValueError("the file that contains user:password is missing")
        # Without a colon it may be a password.
        what = repr(scheme) if colon else "this"
        raise ValueError(f"{what} is not a supported login at ZooKeeper")
    return given


def _mask_password(given: str) -> str:
    """Show the name of a file and a principal, and hide a text that may be a password."""
    scheme, colon, rest = given.partition(":")
    if _AUTH.fullmatch(given) is not None and not (scheme in _SCHEMES_WITH_FILE and _USER_AND_PASSWORD.match(rest)):
        return given
    return f"{scheme}:{HIDDEN}" if colon and re.fullmatch(r"[a-z0-9-]+", scheme) else HIDDEN


def _check_store_type(given: str) -> str:
    if given.upper() != "PEM":
        raise ValueError("only PEM is supported; the error for a Java keystore contains the command that converts it")
    return "PEM"


def _check_algorithm(given: str) -> str:
    if given.lower() not in ("https", ""):
        raise ValueError("")
    return given.lower()


class ZooKeeperLoginSettings(SettingsTable):
    """Logging in."""

    __slots__ = ()

    ORIGIN = Origin.ZKCONSUMER

    zookeeper_auth = optional_text(
        "zookeeper.auth",
        "How to log in at ZooKeeper; it replaces the JAAS section `Client`. FILE contains one line, `user:password`, "
        "and should be readable only for its user; user and password instead of FILE are refused. `digest` is "
        "ZooKeeper's own scheme; Scala members use SASL.",
        _check_auth, AUTH_FORMS,
    )  # fmt: skip
    zookeeper_auth.mask = _mask_password


class ZooKeeperSecuritySettings(SettingsTable):
    """Settings of TLS and ACLs."""

    __slots__ = ()

    ORIGIN = Origin.NEWER_CLIENTS

    zookeeper_set_acl = boolean(
        "zookeeper.set.acl",
        False,
        "Whether only this login may write owner and offset nodes, and the parents made for them, and everyone may "
        "read them, as a Scala member with JAAS creates them from 0.9 on. The registration is always open. `false` "
        "leaves all nodes open to everyone.",
    )
    zookeeper_ssl_client_enable = boolean(
        "zookeeper.ssl.client.enable",
        False,
        "Whether to use TLS with ZooKeeper; the ports in `zookeeper.connect` must then be its secure client ports "
        "(ZooKeeper 3.5 and later).",
    )
    zookeeper_ssl_truststore_location = optional_text(
        "zookeeper.ssl.truststore.location",
        "The certificates of the authorities that this member trusts for ZooKeeper's servers, in PEM; without it "
        "those of the system.",
        lambda given: given,
        "a file",
    )
    zookeeper_ssl_truststore_type = text(
        "zookeeper.ssl.truststore.type",
        "PEM",
        "The format of the truststore.",
        _check_store_type,
        "PEM",
    )
    zookeeper_ssl_keystore_location = optional_text(
        "zookeeper.ssl.keystore.location",
        "The client's certificate and private key, in one PEM file, for servers that require one.",
        lambda given: given,
        "a file",
    )
    zookeeper_ssl_keystore_type = text(
        "zookeeper.ssl.keystore.type",
        "PEM",
        "The format of the keystore.",
        _check_store_type,
        "PEM",
    )
    zookeeper_ssl_keystore_password = secret(
        "zookeeper.ssl.keystore.password", "The password of the private key, when it has one.", "any text"
    )
    zookeeper_ssl_endpoint_identification_algorithm = text(
        "zookeeper.ssl.endpoint.identification.algorithm", "https",
        "`https`: the server's certificate must name the host of `zookeeper.connect`. Empty: it need not, so the "
        "owner of any certificate of the authority can impersonate ZooKeeper.",
        _check_algorithm, "https, or empty",
    )  # fmt: skip

    @staticmethod
    def conflicts(values: Mapping[str, Any], given: frozenset[str]) -> list[str]:
        """Report TLS settings without TLS, and ACLs without a login."""
        problems: list[str] = []
        if not values["zookeeper.ssl.client.enable"]:
            problems += [
                f"{key}: has no effect without zookeeper.ssl.client.enable=true; set that, or remove the key"
                for key in _TLS_KEYS
                if values[key] is not None
            ]
        if values["zookeeper.ssl.keystore.password"] is not None and values["zookeeper.ssl.keystore.location"] is None:
            problems.append("zookeeper.ssl.keystore.password: zookeeper.ssl.keystore.location is missing; set it, too")
        has_name = values["zookeeper.auth"] is not None or values["zookeeper.ssl.keystore.location"] is not None
        if values["zookeeper.set.acl"] and not has_name:
            problems.append(
                "zookeeper.set.acl=true: the nodes would have no owner, because this member does not log in; set "
                "zookeeper.auth, or a client certificate (zookeeper.ssl.keystore.location)"
            )
        return problems
