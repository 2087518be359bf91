"""Logs failed TLS handshakes: asyncio ends such a connection silently, before the broker has an object for it."""

from __future__ import annotations

import logging
import ssl

_log = logging.getLogger(__name__)


class LoggedHandshake(ssl.SSLObject):
    """Set as ``SSLContext.sslobject_class``.  The client's address is unknown here."""

    def do_handshake(self) -> None:
        """Like ``ssl.SSLObject``."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise  # no failure: more bytes must be received, or sent
        except ssl.SSLError as error:
            _log.info("tls-handshake-failed reason=%s", error.reason or error)
            raise
