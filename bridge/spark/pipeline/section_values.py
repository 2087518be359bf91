"""``SectionValues``: the values of one section of a pipeline file, parsed by the table of keys.  Pure.

    TOML table --flattened--> name -> value --parsed by its row--> SectionValues, and problems

A problem is one line without the name of the file: ``[section] key: what is wrong; what to do``.  It never contains the
value of a secret, of a key that is not known, of a list or of a table.  The rules of the section itself (required,
excluded and needed keys, keys of other formats) are checked here, except for options of the source and of brokers,
which ``bridge.spark.options`` checks.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.spark.option_table import KAFKA_PREFIX
from bridge.spark.options import OPTION_NAMES, option_problems, read_options
from bridge.spark.pipeline.option_keys import (
    KEYS_OF_CONSUMER_CONFIG,
    PATH_OPTIONS,
    SOURCE_DEFAULTS,
    TOPIC_WAYS,
    is_sensitive,
    option_setting,
)
from bridge.spark.pipeline.pipeline_key import KeyKind, PipelineKey
from bridge.spark.pipeline.pipeline_keys import PIPELINE_KEYS, keys_of
from bridge.spark.pipeline.secret_reference import SECRET_FORMS, MaybeSecret, SecretReference, parse_secret
from bridge.spark.pipeline.target_keys import OWN
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.config_def import VALUE_CHARS_MAX, unmasked
from zkconsumer.config_tables.jaas import PLAIN_MODULE, SCRAM_MODULE

_URI = re.compile("[A-Za-z][A-Za-z0-9+.-]+:")
_OPTION_KEYS = re.compile(r"([A-Za-z][\w.]*(?:(?: and |, )[A-Za-z][\w.]*)*)(=|: | (?=is |are |cannot ))")
_KEYS_SHOWN_MAX = 12

_VALID_OPTIONS: Mapping[str, str] = {
    "zookeeper.connect": "zookeeper.invalid:2181", "group.id": "unset", "subscribe": "unset",
}  # fmt: skip
"""Placeholders of the required options: with them a check has no problem of its own."""


@dataclass(frozen=True, slots=True)
class SectionValues:
    """The values of one section.

    ``values``: every key that is valid with the format -> its parsed value, or the default; a key without both, and one
    with a problem, is absent.  Of the source: only the options that the file has, as texts or references of secrets.
    ``given``: the keys that the file has.  ``format``: None where the section has no formats or where it is wrong.
    """

    section: str
    values: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    format: str | None = None

    def get(self, name: str) -> Any:
        """The value, or None."""
        return self.values.get(name)


def problem(section: str, key: str, words: str) -> str:
    """One line; ``words``: what is wrong, and what to do."""
    return f"[{section}] {key}: {words}"


def resolve_location(text: str, folder: str) -> str:
    """A path of the file; a relative one begins in ``folder``.  A URI is not changed."""
    return text if _URI.match(text) else posixpath.normpath(posixpath.join(folder, text))


def read_section(section: str, table: Mapping[str, Any], folder: str, problems: list[str]) -> SectionValues:
    """The values of a section that is not ``source``; appends to ``problems``."""
    return _SectionReader(section, folder, problems).read(table)


def read_source(table: Mapping[str, Any], folder: str, problems: list[str]) -> SectionValues:
    """The options of the source: texts and references of secrets; appends to ``problems``."""
    return _SourceReader(folder, problems).read(table)


# --- the other sections -------------------------------------------------------------------------------------------


class _SectionReader:
    """Reads one section by the table of keys."""

    def __init__(self, section: str, folder: str, problems: list[str]) -> None:
        self._section = section
        self._folder = folder
        self._problems = problems
        self._values: dict[str, Any] = {}
        self._given: set[str] = set()

    def read(self, table: Mapping[str, Any]) -> SectionValues:
        rows = keys_of(self._section)
        given = self._once(_flat(table, _whole({key.name for key in rows})))
        format_ = self._format(given, rows)
        for name, value in given.items():
            self._take(name, value, [key for key in rows if key.name == name], format_)
        has_formats = any(key.name == "format" for key in rows)
        if has_formats and format_ is None:  # what else is missing depends on the format
            return SectionValues(self._section, self._values, frozenset(self._given))
        valid = [key for key in rows if key.is_valid_with(format_)]
        for key in valid:
            self._check_together(key)
        self._check_required(valid)
        self._check_brokers()
        for key in valid:
            if key.default is not None and key.name not in self._given:
                self._values[key.name] = key.setting.parse(key.default) if key.kind is KeyKind.DURATION else key.default
        return SectionValues(self._section, self._values, frozenset(self._given), format_)

    def _once(self, flat: Iterator[tuple[str, Any]]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, value in flat:
            if name in given:
                self._add(name, "is set twice, as a quoted and as a dotted key; remove one of them")
            given[name] = value
        return given

    def _format(self, given: Mapping[str, Any], rows: list[PipelineKey]) -> str | None:
        """The format, or None if it is wrong or missing; ``_take`` and ``_check_required`` report that."""
        found = [key for key in rows if key.name == "format"]
        if not found:
            return None
        if "format" not in given:
            if found[0].is_required:
                self._add("format", f"is missing; set it to {found[0].allowed}")
            return None if found[0].default is None else str(found[0].default)
        try:
            return str(found[0].setting.parse(given["format"]))
        except ValueError:
            return None

    def _take(self, name: str, value: Any, rows: list[PipelineKey], format_: str | None) -> None:
        if not rows:
            self._add(name, unknown_key_words(self._section, name))
            return
        self._given.add(name)
        valid = [key for key in rows if key.is_valid_with(format_)]
        if not valid:
            formats = " or ".join(dict.fromkeys(each for key in rows for each in key.formats))
            self._add(
                name, f"is valid with format {formats}, and the format is {format_}; remove it, or change the format"
            )
            return
        if len(valid) > 1:  # the format is not known, and the rows differ
            return
        try:
            self._values[name] = self._parsed(valid[0], value)
        except ValueError as error:
            self._add(name, wrong_value_words(valid[0], value, str(error)))

    def _parsed(self, key: PipelineKey, value: Any) -> Any:
        match key.kind:
            case KeyKind.SECRET:
                return secret_in_folder(value, self._folder)
            case KeyKind.INTEGER | KeyKind.BOOLEAN | KeyKind.DURATION | KeyKind.TEXT_LIST if not _is_of_brokers(
                key.name
            ):
                return key.setting.parse(value)
        given = text_of(value, key.kind)
        if _is_of_brokers(key.name):  # ``_check_brokers`` checks all of them together
            return resolve_location(given, self._folder) if key.kind is KeyKind.PATH else given
        parsed = key.setting.parse(given)
        return resolve_location(parsed, self._folder) if key.kind is KeyKind.PATH else parsed

    def _check_together(self, key: PipelineKey) -> None:
        if key.name not in self._given:
            return
        others = [name for name in key.excludes if name in self._given]
        if others and key.name < min(others):  # one line for all of them
            self._add(f"{key.name} and {' and '.join(others)}", "are set together; set only one of them")
        connection = self._values.get("connection", OWN)
        if connection in key.taken_from:
            self._add(
                key.name, f'cannot be set with connection = "{connection}"; remove it, or set connection = "{OWN}"'
            )
        missing = [name for name in key.needs if name not in self._given]
        if missing and not _is_of_brokers(key.name):
            self._add(key.name, f"needs {' and '.join(missing)}; set {'it' if len(missing) == 1 else 'them'}, too, or "
                                f"remove "
                      f"{key.name}")  # fmt: skip

    def _check_required(self, valid: list[PipelineKey]) -> None:
        reported: set[str] = set()
        connection = self._values.get("connection", OWN)
        for key in valid:
            ways = {key.name, *key.excludes}
            if not key.is_required or ways & (self._given | reported) or connection in key.taken_from:
                continue
            if key.name == "format":  # reported by ``_format``
                continue
            reported.add(key.name)
            if key.excludes:
                self._add(key.name, f"is missing, and so is {' or '.join(key.excludes)}; set one of them")
            else:
                self._add(key.name, f"is missing; set it to {key.allowed}")

    def _check_brokers(self) -> None:
        """The options of the connection to brokers, as the source checks its own."""
        given = {name: value for name, value in self._values.items() if _is_of_brokers(name)}
        if given and self._values.get("connection", OWN) == OWN:
            self._problems += checked_options(self._section, given, self._given)

    def _add(self, key: str, words: str) -> None:
        self._problems.append(problem(self._section, key, words))


# --- the source ---------------------------------------------------------------------------------------------------


class _SourceReader:
    """Reads the options of the source."""

    def __init__(self, folder: str, problems: list[str]) -> None:
        self._folder = folder
        self._problems = problems
        self._values: dict[str, MaybeSecret] = {}
        self._given: set[str] = set()

    def read(self, table: Mapping[str, Any]) -> SectionValues:
        kinds = {key.name: key.kind for key in keys_of("source")}
        for name, value in _flat(table, _whole(OPTION_NAMES)):
            option = OPTION_NAMES.get(name.lower(), name)
            if option in self._given:
                self._add(option, "is set twice (case, quotes and dots make no difference); remove one of them")
                continue
            self._given.add(option)
            self._take(option, value, kinds.get(option, KeyKind.TEXT))
        self._check_required()
        self._problems += checked_options("source", self._values, self._given)
        login = self._values.get("zookeeper.auth")
        if isinstance(login, str):  # after the check, which refuses a password in the place of the file
            self._values["zookeeper.auth"] = _login_in_folder(login, self._folder)
        return SectionValues("source", self._values, frozenset(self._given))

    def _take(self, option: str, value: Any, kind: KeyKind) -> None:
        try:
            if is_sensitive(option):
                self._values[option] = secret_in_folder(value, self._folder)
                return
            given = text_of(value, kind)
            if option in PATH_OPTIONS and option != "zookeeper.auth":
                if given.startswith("~"):
                    raise ValueError("a ~ is not replaced; write the complete path")
                given = resolve_location(given, self._folder) if given else given
            self._values[option] = given
        except ValueError as error:
            setting = option_setting(option)
            allowed = SECRET_FORMS if is_sensitive(option) else "a text" if setting is None else setting.allowed
            self._add(option, f"{error}; set it to {allowed}")

    def _check_required(self) -> None:
        if "consumer.config" not in self._given:
            for key in keys_of("source"):
                if key.name in KEYS_OF_CONSUMER_CONFIG and key.name not in self._given:
                    self._add(key.name, f"is missing; set it to {key.allowed}")
        if not self._given & set(TOPIC_WAYS):
            self._add("subscribe", f"is missing, and so is {' or '.join(TOPIC_WAYS[1:])}; set one of them")

    def _add(self, key: str, words: str) -> None:
        self._problems.append(problem("source", key, words))


def checked_options(section: str, options: Mapping[str, MaybeSecret], given: Collection[str] = ()) -> list[str]:
    """The problems of options of the source, as lines; ``given``: also those options that have a problem already."""
    lines = option_problems(_checked_texts(section, options, given), is_stream=True)
    file = "consumer.config" if "consumer.config" in options else ""  # its own problems name no option
    return [_option_line(section, line, file) for line in lines]


def option_warnings(source: SectionValues) -> Mapping[str, str]:
    """Options of the source that have no effect -> why.  The source must have no problem."""
    return read_options(_checked_texts("source", source.values, source.given), is_stream=True).warnings


def _checked_texts(section: str, options: Mapping[str, MaybeSecret], given: Collection[str]) -> dict[str, str]:
    """The options as they are checked: with the defaults of a pipeline, and with placeholders for what is missing."""
    texts = {name: _checked_text(name, value, options) for name, value in options.items()}
    for name in given:
        if name not in texts and is_sensitive(name):
            texts[name] = _checked_text(name, SecretReference("env", name), options)
    missing = dict(_VALID_OPTIONS)
    if section == "source" and "consumer.config" in given:
        missing = {name: value for name, value in missing.items() if name not in KEYS_OF_CONSUMER_CONFIG}
    if set(TOPIC_WAYS) & texts.keys():
        del missing["subscribe"]
    return {**missing, **(SOURCE_DEFAULTS if section == "source" else {}), **texts}


def _checked_text(name: str, value: MaybeSecret, options: Mapping[str, MaybeSecret]) -> str:
    """The text that is checked: a secret has a valid placeholder, and lines are joined."""
    if isinstance(value, str):
        return re.sub(r"\s*[\r\n]\s*", " ", value)
    if name == "kafka.sasl.jaas.config":
        is_plain = str(options.get("kafka.sasl.mechanism", "")).upper() == "PLAIN"
        return f'{PLAIN_MODULE if is_plain else SCRAM_MODULE} required username="u" password="p";'
    return "placeholder"


def _option_line(section: str, line: str, key: str) -> str:
    """A line of ``bridge.spark.options`` in the form of this file; ``key``: of a line that names no option."""
    found = _OPTION_KEYS.match(line)
    if found is None:
        return problem(section, key, f"{line}; correct it")
    words = line[found.end() :].removeprefix(": ")
    if found[2] == " " and "; " not in words:
        words = words.replace(": ", "; ", 1)
    return problem(section, found[1], words)


# --- values -------------------------------------------------------------------------------------------------------


def text_of(value: Any, kind: KeyKind) -> str:
    """A TOML value as the text of an option.  Raises ``ValueError``, without the value."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case list() if kind is KeyKind.COMMA_LIST and all(isinstance(each, str) for each in value):
            return ",".join(value)
        case dict() if kind is KeyKind.OFFSETS_JSON:
            try:
                return json.dumps(value)
            except TypeError:
                raise ValueError("it contains a value that JSON does not have") from None
    raise ValueError(f"it is {toml_type(value)}, and not a text")


def toml_type(value: Any) -> str:
    """The type of a TOML value, in words."""
    match value:
        case dict():
            return "a table"
        case list():
            return "a list"
        case str():
            return "a text"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
    return "a date or a time"


def secret_in_folder(value: Any, folder: str) -> SecretReference:
    """The reference of a secret; a relative file begins in ``folder``.  Raises ``ValueError``, without the value."""
    found = parse_secret(value)
    return (
        SecretReference("file", posixpath.normpath(posixpath.join(folder, found.place)))
        if found.kind == "file"
        else found
    )


def wrong_value_words(key: PipelineKey, value: Any, hint: str) -> str:
    """What is wrong with the value of a key, and what to do."""
    default = f", or remove it (the default is {key.default_text})" if key.default_text else ""
    what_to_do = f"set it to {key.allowed}{default}"
    if key.kind is KeyKind.SECRET:
        return f"{hint}; {what_to_do}"
    is_shown = isinstance(value, str | int | float)
    shown = (
        key.setting.masked(value if isinstance(value, str) else str(value).lower()) if is_shown else toml_type(value)
    )
    if len(shown) > VALUE_CHARS_MAX:
        shown = f"{shown[:VALUE_CHARS_MAX]}…"
    quoted = f'"{shown}"' if isinstance(value, str) and key.setting.mask is unmasked else shown
    return f"{quoted or 'the value'} is not possible{f' ({hint})' if hint else ''}; {what_to_do}"


def unknown_key_words(section: str, name: str) -> str:
    """What is wrong with a key that a section does not have, and what to do."""
    known = list(dict.fromkeys(key.name for key in keys_of(section)))
    if near := did_you_mean(name, known):
        return f"is not known{near}; correct it, or remove it"
    if homes := list(dict.fromkeys(f"[{key.section}]" for key in PIPELINE_KEYS if key.name == name)):
        return f"is not known here: it is a key of {' and '.join(homes)}; move it, or remove it"
    shown = f"; its keys are {', '.join(known)}" if len(known) <= _KEYS_SHOWN_MAX else ""
    return f"is not known in this section; remove it{shown}"


def _login_in_folder(login: str, folder: str) -> str:
    """``zookeeper.auth`` with a file in ``folder`` if its path is relative."""
    scheme, _, file = login.partition(":")
    is_file = scheme in ("digest", "sasl-digest-md5") and bool(file)
    return f"{scheme}:{posixpath.normpath(posixpath.join(folder, file))}" if is_file else login


def _is_of_brokers(name: str) -> bool:
    return name.startswith(KAFKA_PREFIX)


def _whole(names: Collection[str]) -> frozenset[str]:
    """The names, in lower case, below which no other name begins: a table there is a value."""
    lower = {name.lower() for name in names}
    return frozenset(name for name in lower if not any(other.startswith(f"{name}.") for other in lower))


def _flat(table: Mapping[str, Any], whole: Collection[str], before: str = "") -> Iterator[tuple[str, Any]]:
    """The keys with dots, and their values; a table that is the value of one of ``whole`` stays a table."""
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, dict) and value and name.lower() not in whole:
            yield from _flat(value, whole, f"{name}.")
        else:
            yield name, value
