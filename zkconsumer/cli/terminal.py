"""What the terminal can show: whether there is one, and its width.  Decided only here."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal; False for a stream that was closed."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, or ``COLUMNS`` of them; None if it is no terminal."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
