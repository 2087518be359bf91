"""Conversions between bytes and text; all texts that are stored or exchanged are UTF-8.  Pure."""

from __future__ import annotations

from six import ensure_binary, ensure_text

from zkconsumer.errors import InvalidNameError, MalformedZnode


def decode_strict(data: bytes) -> str:
    """Decode strict UTF-8, for data that only this project writes.  Raises ``MalformedZnode``."""
    try:
        return ensure_text(data, "utf-8", "strict")
    except UnicodeDecodeError as exc:
        raise MalformedZnode(f"not UTF-8 at byte {exc.start} of {len(data)}") from exc


def decode_like_java(data: bytes) -> str:
    """Decode UTF-8 as the Scala consumer's string serializer does: invalid bytes become U+FFFD without an error.

    Java decodes an encoded surrogate as one U+FFFD, Python as three; no valid name contains one of them.
    """
    return ensure_text(data, "utf-8", "replace")


def encode_strict(text: str) -> bytes:
    """Encode as UTF-8.  Raises ``InvalidNameError`` for half a surrogate pair, which cannot be encoded."""
    try:
        return ensure_binary(text, "utf-8", "strict")
    except UnicodeEncodeError as exc:
        raise InvalidNameError(f"{text[:200]!r} cannot be written as UTF-8") from exc
