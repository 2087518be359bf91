"""The settings of a consumer, read from old files as they stand.  Pure but for the reading of a file.

The settings themselves stand in the tables of ``zkconsumer.config_tables``, which ``ConsumerConfig`` below inherits.
Each entry is a ``Setting``: the key, type, unit, what is allowed, default and a sentence; the attribute has the key's
name with underscores.  The reference page is made from them (``config_page``), and so is every message: all problems of
a configuration are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

from zkconsumer.config_tables.brokers import BrokerSettings
from zkconsumer.config_tables.original import OriginalSettings
from zkconsumer.config_tables.ours import OwnSettings
from zkconsumer.config_tables.zookeeper import ZooKeeperLogin, ZooKeeperSecurity
from zkconsumer.errors import InvalidConfigException
from zkconsumer.foreign_keys import successor_of, why_ignored
from zkconsumer.properties import decode_properties, parse_properties
from zkconsumer.settings import (
    HIDDEN,
    JAVA_BLANKS,
    Origin,
    Setting,
    SettingsTable,
    default_in_words,
    default_of,
    report,
    wrong,
)


class Row(NamedTuple):
    """One setting as a reference page shows it; all in words."""

    key: str
    attribute: str
    type: str
    unit: str
    allowed: str
    default: str
    sentence: str
    origin: Origin


def row_of(setting: Setting[Any]) -> Row:
    """A setting in words."""
    return Row(
        setting.key, setting.attribute, setting.type, setting.unit, setting.allowed,
        default_in_words(setting), setting.sentence, setting.origin,
    )  # fmt: skip


# --- the configuration ----------------------------------------------------------------------------------------------


class ConsumerConfig(OriginalSettings, BrokerSettings, ZooKeeperSecurity, OwnSettings, ZooKeeperLogin):
    """The settings of one consumer.

    ``ConsumerConfig(group_id="g", zookeeper_connect="zk1:2181,zk2:2181/kafka", auto_offset_reset="smallest")`` takes
    attributes; ``ConsumerConfig.from_properties("consumer.properties")`` reads an old file.  Both raise
    ``InvalidConfigException`` with a line for each problem.  A configuration does not change.

    ``values``: every key of the table -> value.  ``given``: the keys that were set.  ``ignored``: keys in a file
    that belong to other programs, or have no effect -> why; worth a warning each.  A value that is a secret stands in
    ``values`` alone: no text that is made here shows it.
    """

    __slots__ = ("given", "ignored", "values")

    values: Mapping[str, Any]
    given: frozenset[str]
    ignored: Mapping[str, str]

    # --- making one -----------------------------------------------------------------------------------------

    def __init__(self, **settings: object) -> None:
        """Takes attributes of the table by keyword: numbers and booleans as such or as text.

        Raises ``InvalidConfigException`` with a line for each problem.
        """
        known = {setting.attribute: setting.key for setting in SETTINGS.values()}
        given = {known[name]: value for name, value in settings.items() if name in known}
        problems = [_unknown(name, known) for name in settings if name not in known]
        self._fill(given, problems, {})

    @classmethod
    def from_properties(cls, source: str | Path | Mapping[str, object]) -> Self:
        """Reads an old configuration: a file, the text of one, or a mapping of keys to values.

        A ``str`` with a line end or ``=`` in it is text, any other names a file (Latin-1 or UTF-8).  Keys of other
        programs are set aside in ``ignored``; as in releases from 0.9 on, values are trimmed.

        Raises ``InvalidConfigException`` with a line for each problem, also when the file cannot be read.
        """
        config = cls.__new__(cls)
        config._fill(*_sorted_out(_properties(source)))
        return config

    @classmethod
    def from_files(cls, file: str | Path | None, overrides: Mapping[str, object]) -> Self:
        """A file, if any, and settings that win over it; both are checked together.  See ``with_overrides``."""
        given, problems, ignored = _sorted_out(_properties(Path(file)) if file is not None else {})
        known = _known_keys()
        for name, value in overrides.items():
            if name in known:
                given[known[name]] = value
            else:
                problems.append(_unknown(name, known))
        config = cls.__new__(cls)
        config._fill(given, problems, ignored)
        return config

    def with_overrides(self, overrides: Mapping[str, object]) -> Self:
        """Another configuration, with some settings changed; keys or attributes, and no foreign ones.

        Defaults that follow from others are derived anew.  Raises ``InvalidConfigException``.
        """
        known = _known_keys()
        problems = [_unknown(name, known) for name in overrides if name not in known]
        given: dict[str, object] = {key: self.values[key] for key in SETTINGS if key in self.given}
        given |= {known[name]: value for name, value in overrides.items() if name in known}
        config = type(self).__new__(type(self))
        config._fill(given, problems, {key: why for key, why in self.ignored.items() if key not in SETTINGS})
        return config

    @classmethod
    def is_needed(cls, setting: Setting[Any]) -> bool:
        """Whether this key must be given."""
        return setting.default is ...

    @staticmethod
    def describe() -> list[Row]:
        """The table in words, in its order."""
        return [row_of(setting) for setting in SETTINGS.values()]

    def _fill(self, given: Mapping[str, object], problems: list[str], ignored: dict[str, str]) -> None:
        values: dict[str, Any] = {}
        for key, setting in SETTINGS.items():
            if key in given:
                raw = given[key]
                try:
                    values[key] = setting.read(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw)
                    continue
                except ValueError as e:
                    problems.append(wrong(setting, raw, str(e)))
            elif self.is_needed(setting):
                problems.append(_missing(setting, ignored))
            values[key] = default_of(setting, values)
        for table in TABLES:
            problems += table.contradictions(values, frozenset(given))
        if problems:
            raise InvalidConfigException(report(problems))
        for table in TABLES:
            ignored |= table.without_effect(values, frozenset(given))
        effective = set(given)
        if values["dual.commit.enabled"] and values["offsets.storage"] != "kafka":
            values["dual.commit.enabled"] = False
            effective.discard("dual.commit.enabled")
            ignored["dual.commit.enabled"] = "has no effect while offsets.storage=zookeeper, as in the original"
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "given", frozenset(effective))
        object.__setattr__(self, "ignored", ignored)

    # --- looking at one -------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a configuration does not change; with_overrides({…}) makes another")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled with its secrets, which another process of the same program needs."""
        given = {key: self.values[key] for key in SETTINGS if key in self.given}
        return _restored, (type(self), given, dict(self.ignored))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerConfig) and self.values == other.values

    def __hash__(self) -> int:
        return hash(tuple(self.values.items()))

    def __repr__(self) -> str:
        shown = (
            f"{setting.attribute}={HIDDEN if setting.is_secret else repr(self.values[key])}"
            for key, setting in SETTINGS.items()
            if key in self.given
        )
        return f"ConsumerConfig({', '.join(shown)})"


TABLES: tuple[type[SettingsTable], ...] = tuple(
    table for table in ConsumerConfig.__mro__[1:] if issubclass(table, SettingsTable) and table is not SettingsTable
)
"""The tables, in the order in which ``ConsumerConfig`` names them."""

SETTINGS: dict[str, Setting[Any]] = {
    setting.key: setting for table in TABLES for setting in vars(table).values() if isinstance(setting, Setting)
}
"""Key -> setting, in the order of the tables; a default that follows from another stands below it."""


def _restored(kind: type[ConsumerConfig], given: dict[str, object], ignored: dict[str, str]) -> ConsumerConfig:
    config = kind.__new__(kind)
    config._fill(given, [], ignored)
    return config


# --- reading ------------------------------------------------------------------------------------------------------


def _properties(source: str | Path | Mapping[str, object]) -> Mapping[str, object]:
    if isinstance(source, Mapping):
        return source
    if isinstance(source, Path) or not re.search(r"[\r\n=]", source):
        where = f"{source}: "
        try:
            text = decode_properties(Path(source).read_bytes())
        except (OSError, ValueError) as e:
            why = e.strerror if isinstance(e, OSError) else str(e)
            raise InvalidConfigException(f"the configuration file {source} cannot be read: {why}") from e
    else:
        where, text = "", source
    try:
        return parse_properties(text)
    except ValueError as e:
        raise InvalidConfigException(f"{where}{e}") from e


def _sorted_out(properties: Mapping[str, object]) -> tuple[dict[str, object], list[str], dict[str, str]]:
    """What is ours, what nobody knows (as problems), and what is somebody else's (with the reason)."""
    given: dict[str, object] = {}
    problems: list[str] = []
    ignored: dict[str, str] = {}
    for key, value in properties.items():
        if key in SETTINGS:
            given[key] = value
        elif isinstance(key, str) and (why := why_ignored(key)):
            ignored[key] = why
        else:
            problems.append(_unknown(key, {known: known for known in SETTINGS}))
    return given, problems, ignored


def _known_keys() -> dict[str, str]:
    return {key: key for key in SETTINGS} | {setting.attribute: setting.key for setting in SETTINGS.values()}


# --- words --------------------------------------------------------------------------------------------------------


def _missing(setting: Setting[Any], ignored: Mapping[str, str]) -> str:
    old = next((key for key in ignored if successor_of(key) == setting.key), "")
    hint = f" ({old} does not stand for it: it is {ignored[old]})" if old else ""
    return f"{setting.key} is missing: it must be given; allowed is {setting.allowed}{hint}"


def _unknown(name: object, known: Mapping[str, str]) -> str:
    wanted = str(name)
    if why := why_ignored(wanted.replace("_", ".")):
        return f"{wanted} cannot be set: it is {why}"
    if nearest := get_close_matches(wanted.lower(), known, 1):
        return f"{wanted} is not known: did you mean {nearest[0]}?"
    return f"{wanted} is not known: leave it out, or write external.{wanted} if the application reads it"
