"""TLS handshakes that fail are told: asyncio ends such a connection without a word, and before anybody knows it."""

from __future__ import annotations

import logging
import ssl

_log = logging.getLogger(__name__)


class LoggedHandshake(ssl.SSLObject):
    """Set as ``SSLContext.sslobject_class``.  Who the client is, is not known here."""

    def do_handshake(self) -> None:
        """As ``ssl.SSLObject`` does it."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise  # nothing failed: more bytes must come, or go
        except ssl.SSLError as error:
            _log.info("tls-handshake-failed reason=%s", error.reason or error)
            raise
