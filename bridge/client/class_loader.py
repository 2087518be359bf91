"""Creates objects of classes of the user that the configuration names: ``package.module:ClassName``.

The counterpart of ``AbstractConfig.getConfiguredInstance`` (Kafka 3.0), which loads a class of the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from zkconsumer.errors import InvalidConfigException


def create_from_path(key: str, path: str, configure: Callable[[Any], None]) -> Any:
    """A new object of the class at the import path ``path``, which is a value of the setting ``key``.

    The class is called without arguments; ``configure`` then receives the object.  Raises ``InvalidConfigException``
    for a text that is no import path, and for a class that does not exist or cannot be created or configured.
    """
    module, separator, name = path.partition(":")
    if not (module and separator and name):
        raise InvalidConfigException(
            f"{key}: {path} is not the import path of a Python class; write it as package.module:ClassName"
        )
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        created = found()
        configure(created)
    except Exception as error:
        kind = type(error).__name__
        raise InvalidConfigException(
            f"{key}: {path} cannot be created: {kind}: {error}; correct the class, or where Python looks for it "
            "(PYTHONPATH)"
        ) from error
    return created


def configure_if_possible(created: Any, values: Mapping[str, Any]) -> None:
    """Call ``created.configure(values)``, if it has this method (as Java's ``Configurable``)."""
    if callable(getattr(created, "configure", None)):
        created.configure(values)


def missing_methods(created: Any, methods: Sequence[str]) -> list[str]:
    """Those of ``methods`` that the object lacks."""
    return [method for method in methods if not callable(getattr(created, method, None))]
