"""``Configuration``: reads, checks and shows the settings of some tables.  Pure except for reading a file.

A subclass inherits its tables (``zkconsumer.config_def``); ``zkconsumer.config`` and ``bridge.client`` have such
classes.  Each entry of a table is a ``Setting``: key, type, unit, allowed values, default and a description; the
attribute has the key's name with underscores.  The reference pages (``tests/reference_pages``) and every error text are
made from them.  One error contains all problems of a configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from zkconsumer.config_def import (
    JAVA_BLANKS,
    Origin,
    SameAsSetting,
    Setting,
    SettingOutcome,
    SettingsTable,
    default_of,
    default_text,
    invalid_value_text,
    outcome_of_value,
    problems_text,
)
from zkconsumer.errors import InvalidConfigException
from zkconsumer.other_client_keys import kafka_python_replacement, replacement_key, why_ignored
from zkconsumer.properties import decode_properties, parse_properties


class SettingRow(NamedTuple):
    """One setting as a reference page shows it; all fields are texts."""

    key: str
    attribute: str
    type: str
    unit: str
    allowed: str
    default: str
    description: str
    origin: Origin


def setting_row(setting: Setting[Any]) -> SettingRow:
    """The texts of a setting."""
    return SettingRow(
        setting.key, setting.attribute, setting.type, setting.unit, setting.allowed,
        default_text(setting), setting.description, setting.origin,
    )  # fmt: skip


# --- the configuration ----------------------------------------------------------------------------------------------


class Configuration:
    """The settings of one program, from the tables that the subclass inherits.

    ``values``: every key of the tables -> value.  ``given``: the keys that were set.  ``ignored``: keys in a file
    that belong to other programs, or have no effect -> reason; a connector logs a warning for each.  Only ``values``
    contains secrets: no text of this class shows them.  ``others``: the values of the keys in a file that no table has.
    A configuration does not change.

    A subclass may replace a setting by one with the same key in a table that it names first, and define how it treats
    keys that it does not have: ``canonical_key``, ``why_unsupported``, ``why_ignored``.
    """

    __slots__ = ("given", "ignored", "others", "values")

    values: Mapping[str, Any]
    given: frozenset[str]
    ignored: Mapping[str, str]
    others: Mapping[str, object]

    _tables: ClassVar[tuple[type[SettingsTable], ...]]
    _settings: ClassVar[Mapping[str, Setting[Any]]]

    def __init_subclass__(cls, **how: Any) -> None:
        super().__init_subclass__(**how)
        cls._tables = tables_of(cls)
        cls._settings = settings_of(cls._tables)

    # --- making one -----------------------------------------------------------------------------------------

    def __init__(self, properties: Mapping[str, object] | None = None, /, **settings: object) -> None:
        """Accepts a dictionary of keys as ``from_properties`` does, attributes by keyword, or both.

        Numbers and booleans may be values or texts.  Raises ``InvalidConfigException`` with a line for each problem.
        """
        read = _ConfigInput(type(self))
        read.add_properties(_require_mapping(type(self), properties))
        read.add_by_name(settings, {setting.attribute: setting.key for setting in self._settings.values()})
        self._load(read)

    @classmethod
    def from_properties(cls, source: str | Path | Mapping[str, object]) -> Self:
        """Reads an old configuration: a file, the text of one, or a mapping of keys to values.

        A ``str`` with a line end or ``=`` in it is text, any other names a file (Latin-1 or UTF-8).  Keys of other
        programs are set aside in ``ignored``; as in releases from 0.9 on, values are trimmed.

        Raises ``InvalidConfigException`` with a line for each problem, also when the file cannot be read.
        """
        config = cls.__new__(cls)
        read = _ConfigInput(cls)
        read.add_properties(_load_properties(source))
        config._load(read)
        return config

    @classmethod
    def from_files(cls, file: str | Path | None, overrides: Mapping[str, object]) -> Self:
        """Read a file, if any, with settings that override it; both are checked together.  See ``with_overrides``."""
        read, over = _ConfigInput(cls), _ConfigInput(cls)
        read.add_properties(_load_properties(Path(file)) if file is not None else {})
        over.add_by_name(overrides, cls._known_keys())
        config = cls.__new__(cls)
        config._load(read.merged_with(over))
        return config

    def with_overrides(self, overrides: Mapping[str, object]) -> Self:
        """A new configuration with some settings changed; keys or attributes, not those of other programs.

        Defaults that depend on other settings are computed again.  Raises ``InvalidConfigException``.
        """
        kept = {key: why for key, why in self.ignored.items() if key not in self._settings}
        read, over = (
            _ConfigInput(type(self), self._explicit_values(), kept, dict(self.others)),
            _ConfigInput(type(self)),
        )
        over.add_by_name(overrides, self._known_keys())
        config = type(self).__new__(type(self))
        config._load(read.merged_with(over))
        return config

    # --- methods that a subclass may override ---------------------------------------------------------------

    @classmethod
    def is_required(cls, setting: Setting[Any]) -> bool:
        """Whether this key must be given."""
        return setting.default is ...

    @classmethod
    def canonical_key(cls, key: str) -> str:
        """The key of the table that has the meaning of ``key``; ``key`` itself if it has no other spelling."""
        return key

    @classmethod
    def why_unsupported(cls, key: str, value: object) -> str:
        """Why a key that is not in the table is an error with this value; "" if it is not."""
        return ""

    @classmethod
    def is_only_supported_value(cls, key: str, value: object) -> bool:
        """Whether this value of a key that is not in the table is the fixed behaviour anyway."""
        return False

    @classmethod
    def why_ignored(cls, key: str) -> str:
        """Why a key that is not in the table has no effect; "" for an unknown key."""
        return why_ignored(key)

    @classmethod
    def settle(cls, values: dict[str, Any]) -> dict[str, str]:
        """Change values that have no meaning together with the others; returns their keys -> the reason."""
        return {}

    # --- the table ------------------------------------------------------------------------------------------

    @classmethod
    def describe(cls) -> list[SettingRow]:
        """The texts of all settings, in the order of the table."""
        return [setting_row(setting) for setting in cls._settings.values()]

    @classmethod
    def find_setting(cls, key: str) -> Setting[Any] | None:
        """The setting that this key sets, in either spelling; None when it sets none."""
        return cls._settings.get(cls.canonical_key(key))

    @classmethod
    def outcome_of(cls, key: str, value: object = "") -> SettingOutcome:
        """How a key in a file is treated; ``value``: its value in another program."""
        here = cls.canonical_key(key)
        if here in cls._settings:
            return (
                SettingOutcome.effective(f"as `{here}`") if here != key else outcome_of_value(cls._settings[key], value)
            )
        if why := cls.why_unsupported(key, value):
            return SettingOutcome.rejected(why)
        return (
            SettingOutcome.ignored(why) if (why := cls.why_ignored(key)) else SettingOutcome.rejected("it is not known")
        )

    @classmethod
    def _known_keys(cls) -> dict[str, str]:
        keys = {key: key for key in cls._settings}
        return keys | {setting.attribute: setting.key for setting in cls._settings.values()}

    def _explicit_values(self) -> dict[str, object]:
        return {key: self.values[key] for key in self._settings if key in self.given}

    # --- checking -------------------------------------------------------------------------------------------

    def _load(self, read: _ConfigInput) -> None:
        values: dict[str, Any] = {}
        given, ignored = read.given, read.ignored
        problems: list[str] = []
        for key, setting in self._settings.items():
            if key in given:
                raw = given[key]
                try:
                    values[key] = setting.parse(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw)
                    continue
                except ValueError as e:
                    problems.append(invalid_value_text(setting, raw, str(e)))
            elif self.is_required(setting):
                problems.append(_missing_setting_text(setting, ignored))
            values[key] = default_of(setting, values)
        for table in self._tables:
            problems += table.conflicts(values, frozenset(given))
        problems = read.problems + [read.with_original_keys(problem) for problem in problems]
        if problems:
            raise InvalidConfigException(problems_text(problems))
        for table in self._tables:
            ignored |= table.without_effect(values, frozenset(given))
        without_meaning = self.settle(values)
        ignored |= without_meaning
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "given", frozenset(given) - without_meaning.keys())
        object.__setattr__(self, "ignored", ignored)
        object.__setattr__(self, "others", read.others)

    # --- access ---------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a configuration cannot be changed; with_overrides({…}) returns a new one")

    def __reduce__(self) -> tuple[object, ...]:
        """The pickle contains the secrets, because another process of the same program needs them."""
        return _unpickle, (type(self), self._explicit_values(), dict(self.ignored), dict(self.others))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.values == other.values

    def __hash__(self) -> int:
        return hash(tuple(self.values.items()))

    def __repr__(self) -> str:
        shown = (
            f"{setting.attribute}={_in_repr(setting, self.values[key])}"
            for key, setting in self._settings.items()
            if key in self.given
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def tables_of(config: type[Configuration]) -> tuple[type[SettingsTable], ...]:
    """The tables that a configuration inherits, in the order in which it names them."""
    return tuple(
        table
        for table in config.__mro__
        if issubclass(table, SettingsTable) and table is not SettingsTable and not issubclass(table, Configuration)
    )


def settings_of(tables: Iterable[type[SettingsTable]]) -> dict[str, Setting[Any]]:
    """Key -> setting, in the order of the tables; if two have the same key, the first counts.

    A setting whose default depends on another setting is after that one.
    """
    settings: dict[str, Setting[Any]] = {}
    for table in tables:
        for setting in vars(table).values():
            if isinstance(setting, Setting):
                settings.setdefault(setting.key, setting)
    return settings


def _unpickle(
    kind: type[Configuration], given: dict[str, object], ignored: dict[str, str], others: dict[str, object]
) -> Configuration:
    config = kind.__new__(kind)
    config._load(_ConfigInput(kind, given, ignored, others))
    return config


# --- reading ------------------------------------------------------------------------------------------------------


class _ConfigInput:
    """The input of a configuration: settings, problems, and keys without effect, with the reason and the value.

    ``_original_keys``: key -> its spelling in the input, if that is another one.
    """

    def __init__(
        self,
        config: type[Configuration],
        given: dict[str, object] | None = None,
        ignored: dict[str, str] | None = None,
        others: dict[str, object] | None = None,
    ) -> None:
        self.given: dict[str, object] = given or {}
        self.ignored: dict[str, str] = ignored or {}
        self.others: dict[str, object] = others or {}
        self.problems: list[str] = []
        self._original_keys: dict[str, str] = {}
        self._config = config

    def add_properties(self, properties: Mapping[str, object]) -> None:
        """Add the keys of a file; keys of other programs are added to ``ignored``."""
        config = self._config
        for key, value in properties.items():
            here = config.canonical_key(key) if isinstance(key, str) else ""
            if here in config._settings:
                self._add(here, key, value)
            elif not here:
                self.problems.append(_unknown_setting_text(config, key, config._settings))
            elif why := config.why_unsupported(key, value):
                self.problems.append(f"{key} cannot be set: {why}")
            elif config.is_only_supported_value(key, value):
                continue
            elif why := config.why_ignored(key):
                self.ignored[key] = why
                self.others[key] = value
            else:
                self.problems.append(_unknown_setting_text(config, key, config._settings))

    def add_by_name(self, words: Mapping[str, object], known: Mapping[str, str]) -> None:
        """Add settings that the program names; keys of other programs are problems.  ``known``: name -> key."""
        config = self._config
        for name, value in words.items():
            key = name.replace("_", ".") if isinstance(name, str) else ""
            here = known.get(name) or config.canonical_key(key)
            if here in config._settings and (name in known or here != key):
                self._add(here, name, value)
            elif why := config.why_unsupported(key, value):
                self.problems.append(f"{name} cannot be set: {why}")
            elif not config.is_only_supported_value(key, value):
                self.problems.append(_unknown_setting_text(config, name, known))

    def _add(self, key: str, name: str, value: object) -> None:
        if key in self.given and not self._is_same(key, value):
            before = self._original_keys.get(key, key)
            self.problems.append(
                f"{before} and {name} are the same setting with different values "
                f"({_masked(self._config, key, self.given[key])} and {_masked(self._config, key, value)}): remove one"
            )
            return
        self.given[key] = value
        if name != key:
            self._original_keys[key] = name

    def _is_same(self, key: str, value: object) -> bool:
        read = self._config._settings[key].parse
        try:
            one, other = (
                read(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw) for raw in (self.given[key], value)
            )
        except ValueError:
            return self.given[key] == value
        return bool(one == other)

    def merged_with(self, other: _ConfigInput) -> _ConfigInput:
        """This input, overridden by ``other``."""
        made = _ConfigInput(
            self._config, self.given | other.given, self.ignored | other.ignored, self.others | other.others
        )
        made.problems = self.problems + other.problems
        made._original_keys = {
            key: name for key, name in self._original_keys.items() if key not in other.given
        } | other._original_keys
        return made

    def with_original_keys(self, problem: str) -> str:
        """The text with the keys of the input: in their spelling, and for defaults that depend on one of them."""
        spelled = {
            key: setting.default.key
            for key, setting in self._config._settings.items()
            if isinstance(setting.default, SameAsSetting)
            and key not in self.given
            and setting.default.key in self.given
        } | {key: name for key, name in self._original_keys.items() if "." in name}
        if not spelled:
            return problem
        keys = "|".join(re.escape(key) for key in sorted(spelled, key=len, reverse=True))
        return re.sub(rf"(?<![\w.])({keys})(?![\w.])", lambda found: spelled[found[1]], problem)


def _require_mapping(config: type[Configuration], properties: object) -> Mapping[str, object]:
    if properties is None:
        return {}
    if isinstance(properties, Mapping):
        return properties
    name = config.__name__
    raise InvalidConfigException(
        f"{name} takes a dictionary of keys and values, or keywords, and not {type(properties).__name__}: "
        f'to read a file, or the text of a file, call {name}.from_properties("consumer.properties")'
    )


def _load_properties(source: str | Path | Mapping[str, object]) -> Mapping[str, object]:
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


# --- texts --------------------------------------------------------------------------------------------------------


def _in_repr(setting: Setting[Any], value: object) -> str:
    shown = setting.masked(value)
    return repr(shown) if isinstance(value, str) and not setting.is_secret else shown


def _missing_setting_text(setting: Setting[Any], ignored: Mapping[str, str]) -> str:
    old = next((key for key in ignored if replacement_key(key) == setting.key), "")
    hint = f" ({old} does not replace it: it is {ignored[old]})" if old else ""
    return f"{setting.key} is missing: it must be given; allowed is {setting.allowed}{hint}"


def _masked(config: type[Configuration], key: str, value: object) -> str:
    return config._settings[key].masked(str(value))


def _unknown_setting_text(config: type[Configuration], name: object, known: Iterable[str]) -> str:
    wanted = str(name)
    if why := config.why_ignored(wanted.replace("_", ".")):
        return f"{wanted} cannot be set: it is {why}"
    if here := kafka_python_replacement(wanted):
        what = f"set {here.replace('.', '_') if '_' in wanted else here} instead" if " " not in here else here
        return f"{wanted} is not known: it is a setting of kafka-python; {what}"
    if nearest := get_close_matches(wanted.lower(), known, 1):
        return f"{wanted} is not known: did you mean {nearest[0]}?"
    return f"{wanted} is not known: remove it, or write external.{wanted} if the application reads it"
