"""Waiting for a condition with a deadline, and choosing ports.  No other module of the sandbox waits or sleeps."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import TypeVar

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal
from zkconsumer.errors import SandboxError

T = TypeVar("T")

POLL_MS, POLL_MS_MAX = 20, 200
POLLS_OF_A_WAIT = 20
HOST = "127.0.0.1"

# Below the range from which systems take the source ports of outgoing connections (32768 and up on Linux).  A port
# from that range could be taken by some client while its server restarts.
PORT_FIRST, PORT_LAST = 15_000, 31_999
PORT_TRIES_MAX = 200

_given: set[int] = set()
_never = StopSignal()


def pause_ms(duration_ms: int) -> None:
    """Lets the rest of the machine work."""
    _never.wait(duration_ms)


def wait_until(check: Callable[[], T], what: str, timeout_ms: int, poll_ms: int | None = None) -> T:
    """Return the first true answer of ``check``; after the deadline, raise SandboxError that contains ``what``.

    ``check`` is called every ``poll_ms``.  By default that is ``POLL_MS`` at first and a twentieth of the time so far
    later, up to ``POLL_MS_MAX``: many checks ask a server, which costs CPU that what is waited for needs.
    """
    began_ms = SYSTEM_CLOCK.now_ms()
    while True:
        answer = check()
        if answer:
            return answer
        waited_ms = SYSTEM_CLOCK.now_ms() - began_ms
        if waited_ms >= timeout_ms:
            raise SandboxError(f"waited {timeout_ms} ms in vain: {what}")
        pause_ms(min(max(POLL_MS, waited_ms // POLLS_OF_A_WAIT), POLL_MS_MAX) if poll_ms is None else poll_ms)


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens now; never the same twice in a process.

    Another process may still take it first, so the caller that starts a server tries again with another port.
    """
    for _ in range(PORT_TRIES_MAX):
        port = random.randint(PORT_FIRST, PORT_LAST)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise SandboxError(f"no free port between {PORT_FIRST} and {PORT_LAST} in {PORT_TRIES_MAX} tries")
