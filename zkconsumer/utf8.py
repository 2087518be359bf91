"""The border between bytes and text: everything that this program says or reads is UTF-8.  Pure."""

from __future__ import annotations

from six import ensure_binary, ensure_text

from zkconsumer.errors import InvalidNameError, MalformedZnode


def decode_strict(data: bytes) -> str:
    """Strict UTF-8, for what only programs like this one write.  Raises ``MalformedZnode``."""
    try:
        return ensure_text(data, "utf-8", "strict")
    except UnicodeDecodeError as exc:
        raise MalformedZnode(f"not UTF-8 at byte {exc.start} of {len(data)}") from exc


def decode_like_java(data: bytes) -> str:
    """UTF-8 as the original's string serializer reads it: what is not UTF-8 becomes U+FFFD, and is no error.

    Java makes one U+FFFD of an encoded surrogate, Python three; no name that counts can hold either.
    """
    return ensure_text(data, "utf-8", "replace")


def encode_strict(text: str) -> bytes:
    """UTF-8.  Raises ``InvalidNameError`` for half a surrogate pair, which has no bytes."""
    try:
        return ensure_binary(text, "utf-8", "strict")
    except UnicodeEncodeError as exc:
        raise InvalidNameError(f"{text[:200]!r} cannot be written as UTF-8") from exc
