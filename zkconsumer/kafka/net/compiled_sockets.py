"""The compiled module that receives large responses, or None: then Python receives them by more calls."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from zkconsumer import extensions

SOCKETS: ModuleType | None = extensions.load("zkconsumer.base._sockets")
"""``_sockets.c``."""

NO_WAKE_UP: Final = -1
"""For ``SOCKETS.receive``: no descriptor ends the wait."""
