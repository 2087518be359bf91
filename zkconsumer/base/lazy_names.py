"""The public names of a package that are imported at their first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, module_by_name: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package (PEP 562).

    A package takes them ``if not TYPE_CHECKING``: with a ``__getattr__`` a type checker would accept every name.
    """

    def load(name: str) -> Any:
        if name not in module_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_by_name[name]), name)

    return load, lambda: sorted(module_by_name)
