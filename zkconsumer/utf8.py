"""Conversions between bytes and text; all texts that this project stores or exchanges are UTF-8.  Pure."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from functools import lru_cache

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


@lru_cache
def string_function(encoding: str) -> Callable[[bytes], str]:
    """Decodes text as ``new String(data, encoding)``: malformed bytes become U+FFFD.

    UTF-16 and UTF-32 without a byte order mark are big-endian, as in Java.  ``LookupError``: Python has no such
    encoding.
    """
    codec = codecs.lookup(encoding).name
    b"0".decode(codec, "replace")  # LookupError: the codec is not one of text, as hex
    marks = {
        "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
        "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    }.get(codec)
    if marks is None:
        return lambda data: data.decode(codec, "replace")
    return lambda data: data.decode(codec if data.startswith(marks) else f"{codec}-be", "replace")


def encode_strict(text: str) -> bytes:
    """Encode as UTF-8.  Raises ``InvalidNameError`` for half a surrogate pair, which cannot be encoded."""
    try:
        return ensure_binary(text, "utf-8", "strict")
    except UnicodeEncodeError as exc:
        raise InvalidNameError(f"{text[:200]!r} cannot be written as UTF-8") from exc
