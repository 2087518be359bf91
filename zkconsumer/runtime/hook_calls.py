"""Calls the program's hooks, on a separate thread.

A slow hook only delays later hook calls; when ``HOOK_CALLS_QUEUED_MAX`` calls wait, further calls are dropped and
counted (``hooks_dropped``).  An exception is logged once for each hook, and counted (``hooks_failed``).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from zkconsumer.runtime.callback_thread import CallbackThread

if TYPE_CHECKING:
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.observe.counters import Counters
    from zkconsumer.types import Hooks

HOOK_CALLS_QUEUED_MAX = 1_000
"""How many calls may wait for a slow hook."""

log = logging.getLogger("zkconsumer.member")


class HookCalls:
    """Calls the hooks; without hooks its methods have no effect."""

    def __init__(self, member: str, hooks: Hooks | None, counters: Counters, on_thread_error: OnThreadError) -> None:
        self._member = member
        self._hooks = hooks
        self._counters = counters
        self._thread = CallbackThread(f"{member}-hooks", HOOK_CALLS_QUEUED_MAX, on_thread_error)
        self._logged_hooks: set[str] = set()

    def __bool__(self) -> bool:
        return self._hooks is not None

    def call(self, name: str, *values: Any) -> None:
        """Queue a call of this hook; from any thread."""
        if self._hooks is not None and not self._thread.enqueue(partial(self._call, name, values)):
            self._counters.add("hooks_dropped")

    def _call(self, name: str, values: tuple[Any, ...]) -> None:
        try:
            getattr(self._hooks, name)(*values)
        except BaseException as error:
            self._counters.add("hooks_failed")
            if name not in self._logged_hooks:
                self._logged_hooks.add(name)
                log.error("hook-raised member=%s hook=%s: logged once", self._member, name, exc_info=error)

    def close(self) -> None:
        """Finish the queued calls, and accept no more."""
        self._thread.close(finish=True)

    def join(self, timeout_ms: int) -> bool:
        """Wait for the last call, unless the caller runs in one."""
        return self._thread.join(timeout_ms)
