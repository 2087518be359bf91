"""Sends ZooKeeper's four-letter words: commands outside any session, which a server may reject.

Since 3.5 a server only answers the words of its ``4lw.commands.whitelist`` (default: ``srvr``).  So no function of this
project depends on the answers.
"""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from zkconsumer.base.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable

ANSWER_BYTES_MAX = 4 * 1024 * 1024

_CLIENT = re.compile(rb"/(?P<host>[^\s\[\]]+?):\d+\[[^\n]*?\bsid=0x(?P<sid>[0-9a-fA-F]+)")


def send_four_letter_word(
    address: tuple[str, int], word: str, timeout_ms: int, tls: ssl.SSLContext | None = None
) -> bytes:
    """Return the answer of one server; empty if it does not answer.

    Raises ``OSError``: also if the server has not closed the connection, as it does after its answer, in ``timeout_ms``
    after it was connected.
    """
    timeout_s = timeout_ms / 1000
    heard = bytearray()
    plain = socket.create_connection(address, timeout_s)
    deadline_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
    with plain if tls is None else tls.wrap_socket(plain, server_hostname=address[0]) as asked:
        asked.settimeout(timeout_s)
        asked.sendall(word.encode("ascii"))
        while len(heard) < ANSWER_BYTES_MAX and (more := asked.recv(65_536)):
            heard += more
            left_ms = deadline_ms - SYSTEM_CLOCK.now_ms()
            if left_ms <= 0:
                raise TimeoutError("timed out")  # as a receive does
            asked.settimeout(left_ms / 1000)
    return bytes(heard)


def host_of_session(
    addresses: Iterable[tuple[str, int]], session_id: int, timeout_ms: int, tls: ssl.SSLContext | None = None
) -> str | None:
    """The host of a session, by the word ``cons``; None when no server reports it.  ``timeout_ms``: for each server."""
    for address in addresses:
        with suppress(OSError):
            for client in _CLIENT.finditer(send_four_letter_word(address, "cons", timeout_ms, tls)):
                if int(client["sid"], 16) == session_id & 0xFFFFFFFFFFFFFFFF:
                    return client["host"].decode("ascii", "replace")
    return None
