"""What an installation uses: Python, compiled modules, checksums, codecs."""

from __future__ import annotations

import platform
import sys

from zkconsumer import extensions
from zkconsumer.wire import compiled, compression


def describe() -> list[str]:
    """One line for each fact, for ``zkconsumer --version -v``."""
    build = f"{platform.python_implementation()}, {sys.platform}, {sys.executable}"
    python = f"Python: {platform.python_version()} ({build})"
    modules = [f"compiled module {name}: {state}" for name, state in extensions.status().items()]
    codecs = ", ".join(f"{codec} by {package}" for codec, package in compression.implementations().items())
    return [python, *modules, f"checksums: {_checksums()}", f"codecs: {codecs}"]


def _checksums() -> str:
    if compiled.RECORD_DECODER is None:
        return "zlib (CRC-32), google-crc32c (CRC-32C)"
    crc32, crc32c = compiled.RECORD_DECODER.CHECKSUMS_BY
    return f"by {crc32} (CRC-32), by {crc32c} (CRC-32C)"
