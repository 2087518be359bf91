"""Kerberos without a KDC: a package ``gssapi`` that plays one login."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class GssError(Exception):
    """What the fake package raises."""


@pytest.fixture
def kerberos(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A package ``gssapi`` with one round of tokens; ``offer`` is the server's last message."""
    state: dict[str, Any] = {"names": [], "offer": b"\x01\x00\x10\x00", "ticket": True, "is_endless": False}

    class Context:
        def __init__(self, name: str, usage: str, creds: str | None = None) -> None:
            assert usage == "initiate"
            state["names"].append(name)
            state["creds"] = creds
            self.complete = False

        def step(self, token: bytes | None) -> bytes | None:
            if not state["ticket"]:
                raise GssError("No Kerberos credentials available")
            if token is None:
                return b"AP-REQ"
            if state["is_endless"]:
                return b"more"
            assert token == b"AP-REP"
            self.complete = True
            return None

        def unwrap(self, message: bytes) -> Any:
            assert message == b"wrapped offer"
            return SimpleNamespace(message=state["offer"])

        def wrap(self, message: bytes, encrypt: bool) -> Any:
            assert not encrypt
            return SimpleNamespace(message=b"wrapped " + message)

    package = ModuleType("gssapi")
    package.Name = lambda text, kind: f"{kind}:{text}"  # type: ignore[attr-defined]
    package.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")  # type: ignore[attr-defined]
    package.SecurityContext = Context  # type: ignore[attr-defined]
    package.Credentials = lambda name, usage: f"{usage} as {name}"  # type: ignore[attr-defined]
    package.exceptions = SimpleNamespace(GSSError=GssError)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gssapi", package)
    return state
