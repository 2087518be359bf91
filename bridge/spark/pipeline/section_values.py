"""``SectionValues``: the values of one section of a pipeline file, parsed by the table of keys.  Pure.

    TOML table --flattened--> name -> value --parsed by its row--> SectionValues, and problems

A problem (``toml_values.problem``) never contains the value of a secret, of a key that is not known, of a list or of a
table.  The rules of the section itself (required, excluded and needed keys, keys of other formats) are checked here;
``option_checks`` checks the options of the connection to brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.spark.option_table import KAFKA_PREFIX
from bridge.spark.pipeline.option_checks import checked_options
from bridge.spark.pipeline.pipeline_key import KeyKind, PipelineKey
from bridge.spark.pipeline.pipeline_keys import PIPELINE_KEYS, keys_of
from bridge.spark.pipeline.target_keys import OWN
from bridge.spark.pipeline.toml_values import (
    flat_keys,
    problem,
    resolve_location,
    secret_in_folder,
    text_of,
    toml_type,
    whole_names,
)
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.config_def import VALUE_CHARS_MAX, unmasked

_KEYS_SHOWN_MAX = 12


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


def read_section(section: str, table: Mapping[str, Any], folder: str, problems: list[str]) -> SectionValues:
    """The values of a section that is not ``source``; appends to ``problems``."""
    return _SectionReader(section, folder, problems).read(table)


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
        given = self._once(flat_keys(table, whole_names({key.name for key in rows})))
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


def _is_of_brokers(name: str) -> bool:
    return name.startswith(KAFKA_PREFIX)
