"""Named clusters of ``config.toml``: the addresses and the ``.properties`` file that ``--context NAME`` selects.

    [contexts.production]
    zookeeper = "zk1:2181,zk2:2181/kafka"
    bootstrap-server = "kafka1:9092"
    config = "production.properties"

The keys have the names of the options.  ``config`` is relative to the folder of ``config.toml``.  Other keys are
errors, so the file cannot contain a password: passwords are in the ``.properties`` file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.errors import UsageError

CONTEXT_VARIABLE = "ZKCONSUMER_CONTEXT"
EXAMPLE = '[contexts.NAME], then zookeeper = "HOST:2181/chroot"'

_TABLE = "contexts"
_ZOOKEEPER, _BOOTSTRAP, _CONFIG = _KEYS = ("zookeeper", "bootstrap-server", "config")


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One named cluster; at least one of the values is present."""

    name: str
    zookeeper: str | None = None
    bootstrap_servers: str | None = None
    config_file: Path | None = None


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the place of ``config.toml``: below ``$XDG_CONFIG_HOME`` if that is an absolute path, else ``~/.config``.

    The XDG Base Directory Specification says that a relative path is to be ignored.  Raises ``UsageError`` if there is
    neither.
    """
    home = environment.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(home) if os.path.isabs(home) else Path("~/.config").expanduser()
    except RuntimeError as error:  # a user of a container may have no entry in /etc/passwd
        raise UsageError("this user has no home directory: set HOME, or XDG_CONFIG_HOME to an absolute path") from error
    return folder / "zkconsumer" / "config.toml"


def read_contexts(path: Path) -> dict[str, ClusterContext]:
    """Return the contexts of the file by name, in the order of the file; none if there is no file.

    Raises ``UsageError`` if the file cannot be read or is not valid.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        return parse_contexts(text, path.parent)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def parse_contexts(text: str, folder: Path) -> dict[str, ClusterContext]:
    """Return the contexts of the TOML text.  ``folder``: the folder for relative paths.  Raises ``ValueError``."""
    document = tomllib.loads(text)
    unknown = sorted(document.keys() - {_TABLE})
    if unknown:
        raise ValueError(f"there is no key {unknown[0]!r}; write {EXAMPLE}")
    tables = document.get(_TABLE, {})
    if not isinstance(tables, dict):
        raise ValueError(f"{_TABLE} must be a table: {EXAMPLE}")
    return {name: _context(name, table, folder) for name, table in tables.items()}


def find_context(name: str, path: Path) -> ClusterContext:
    """Return the context with this name.  Raises ``UsageError`` that names those that exist."""
    contexts = read_contexts(path)
    if name in contexts:
        return contexts[name]
    if not path.exists():
        raise UsageError(f"there is no file {path}, so there is no context {name!r}: create it with {EXAMPLE}")
    known = ", ".join(contexts)
    raise UsageError(f"{path} has no context {name!r}: " + (f"it has {known}" if known else f"write {EXAMPLE}"))


def _context(name: str, table: object, folder: Path) -> ClusterContext:
    where = f"[{_TABLE}.{name}]"
    if not isinstance(table, dict):
        raise ValueError(f"{_TABLE}.{name} must be a table: {EXAMPLE}")
    for key, value in table.items():
        if key not in _KEYS:
            raise ValueError(
                f"{where} has the key {key!r}; its keys are {', '.join(_KEYS)}. Other settings, and passwords, "
                f"belong into the .properties file that {_CONFIG} names"
            )
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}: {key} must be a text that is not empty")
    if not table:
        raise ValueError(f"{where} is empty; its keys are {', '.join(_KEYS)}")
    config = table.get(_CONFIG)
    try:
        file = None if config is None else folder / Path(config).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{where}: {_CONFIG} has the home directory of a user who has none: {config}") from error
    return ClusterContext(name, table.get(_ZOOKEEPER), table.get(_BOOTSTRAP), file)
