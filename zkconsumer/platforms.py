"""Checks whether the package supports this system and interpreter.  Pure.

``zkconsumer/__init__.py`` calls ``check_platform`` before any other code of the package runs; ``bridge`` imports
``zkconsumer``.
"""

from __future__ import annotations

import sys

from zkconsumer.errors import UnsupportedPlatform

UNSUPPORTED_SYSTEMS = {
    "win32": "Windows",
    "cygwin": "Windows with Cygwin",
    "emscripten": "a browser",
    "wasi": "WebAssembly",
}
"""``sys.platform`` of systems without fork hooks, Unix sockets and POSIX clocks; 3.11 to 3.13 have these names."""


def unsupported_reason(system: str, has_gil: bool) -> str:
    """Why the package does not run there, and what to do; "" if it does.

    ``system``: as ``sys.platform``.  ``has_gil``: as ``sys._is_gil_enabled()``.
    """
    if system in UNSUPPORTED_SYSTEMS:
        return (
            f"zkconsumer does not run on {UNSUPPORTED_SYSTEMS[system]} (sys.platform is {system!r}): it needs POSIX "
            "clocks, fork hooks and Unix sockets, and was not tested without them; run it on Linux or macOS, or on "
            "Windows inside WSL 2"
        )
    if not has_gil:
        return (
            "zkconsumer does not run without the global interpreter lock: the thread that iterates a stream and the "
            "thread that releases a partition use no lock, but the order of their writes, which was only tested with "
            "the GIL; set PYTHON_GIL=1 (or start python -X gil=1), or use a build of Python with the GIL"
        )
    return ""


def check_platform() -> None:
    """Raises ``UnsupportedPlatform`` (an ``ImportError`` too) where the package does not run."""
    # Free-threaded builds (3.13 and later) have this function; without it there is a GIL.
    is_gil_enabled = getattr(sys, "_is_gil_enabled", None)
    if why := unsupported_reason(sys.platform, is_gil_enabled is None or is_gil_enabled()):
        raise UnsupportedPlatform(why)
