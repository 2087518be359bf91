"""The client side of the SASL mechanism GSSAPI (RFC 4752) without a security layer, for brokers and ZooKeeper.

    first() --> tokens in both directions --> the server offers security layers --> the client selects none

Requires the package ``gssapi`` and the Kerberos library of the system; uses the ticket of the environment.
"""

from __future__ import annotations

import importlib
from typing import Any

NO_SECURITY_LAYER = b"\x01\x00\x00\x00"
"""The client's selection from the offered security layers.  First byte 1: no layer, so later messages are not wrapped
(TLS may encrypt them).  The other three bytes: the maximum size of a wrapped message, 0 without a layer."""


class KerberosError(Exception):
    """The library failed in a step: no ticket exists, or the server is not the expected service."""


class SecurityLayerRequired(Exception):
    """The server requires a security layer."""


def load_gssapi() -> Any:
    """Import the package ``gssapi``.  Raises ``ImportError`` without it, or without the system's Kerberos library."""
    return importlib.import_module("gssapi")


class KerberosClient:
    """One login at one server.  ``principal``: the principal whose ticket is used; None: the default principal.

    Raises ``KerberosError``.
    """

    def __init__(self, service: str, host: str, principal: str | None = None) -> None:
        gssapi = load_gssapi()
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        self.is_complete = False
        """Whether the client's selection was returned: the login is complete if the server accepts it."""
        try:
            name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
            options = {}
            if principal is not None:
                own = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
                options["creds"] = gssapi.Credentials(name=own, usage="initiate")
            self._context = gssapi.SecurityContext(name=name, usage="initiate", **options)
        except self._errors as error:
            raise KerberosError(str(error)) from error

    def first(self) -> bytes:
        """The first message."""
        return self._step(None)

    def answer(self, challenge: bytes) -> bytes:
        """The answer to a message of the server; do not call it when ``is_complete``.

        Raises ``KerberosError``, ``SecurityLayerRequired``.
        """
        if not self._context.complete:
            return self._step(challenge)
        try:
            offered = bytes(self._context.unwrap(challenge).message)
            if len(offered) != 4 or not offered[0] & NO_SECURITY_LAYER[0]:
                raise SecurityLayerRequired
            answer = bytes(self._context.wrap(NO_SECURITY_LAYER, False).message)
        except self._errors as error:
            raise KerberosError(str(error)) from error
        self.is_complete = True
        return answer

    def _step(self, challenge: bytes | None) -> bytes:
        try:
            return bytes(self._context.step(challenge) or b"")
        except self._errors as error:
            raise KerberosError(str(error)) from error
