"""The client's side of SASL's mechanism GSSAPI (RFC 4752) without a security layer, for brokers and ZooKeeper alike.

    first --> token ... token --> server's offer of layers --> our choice: none

Needs the package ``gssapi`` and the Kerberos library of the system; the ticket is that of the environment.
"""

from __future__ import annotations

import importlib
from typing import Any

NO_SECURITY_LAYER = b"\x01\x00\x00\x00"
"""Our choice among the layers that the server offers: nothing is wrapped afterwards (TLS does that)."""


class KerberosError(Exception):
    """The library refused a step: there is no ticket, or the server is not the service that it should be."""


class SecurityLayerRequired(Exception):
    """The server offers no exchange without a security layer."""


def load_gssapi() -> Any:
    """The package ``gssapi``.  ``ImportError``: it, or the Kerberos library of the system, is not installed."""
    return importlib.import_module("gssapi")


class KerberosClient:
    """One login at one server.  ``principal``: which of the tickets to use; None: the default one."""

    def __init__(self, service: str, host: str, principal: str | None = None) -> None:
        gssapi = load_gssapi()
        self._errors: type[Exception] = gssapi.exceptions.GSSError
        self.is_complete = False
        """Whether our choice was given: the login is over, unless the server refuses it."""
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
        """The answer to a message of the server; not to be called once ``is_complete``."""
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
