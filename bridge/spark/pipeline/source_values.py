"""Reads the section ``source`` of a pipeline file: options of ``format("zkconsumer")``.  Pure.

Names are options in any case.  Values are texts and references of secrets; ``option_checks`` checks them, in the form
in which a user wrote them, except that paths are complete and that there are no blanks around a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridge.spark.options import OPTION_NAMES
from bridge.spark.pipeline.option_checks import checked_options
from bridge.spark.pipeline.option_keys import (
    KEYS_OF_CONSUMER_CONFIG,
    PATH_OPTIONS,
    TOPIC_WAYS,
    is_sensitive,
    option_setting,
)
from bridge.spark.pipeline.pipeline_key import KeyKind
from bridge.spark.pipeline.pipeline_keys import keys_of
from bridge.spark.pipeline.secret_reference import SECRET_FORMS, MaybeSecret
from bridge.spark.pipeline.section_values import SectionValues
from bridge.spark.pipeline.toml_values import (
    flat_keys,
    login_in_folder,
    problem,
    resolve_location,
    secret_in_folder,
    text_of,
    whole_names,
)
from zkconsumer.config_def import JAVA_BLANKS


def read_source(table: Mapping[str, Any], folder: str, problems: list[str]) -> SectionValues:
    """The options of the source: texts and references of secrets; appends to ``problems``."""
    return _SourceReader(folder, problems).read(table)


class _SourceReader:
    """Reads the options of the source."""

    def __init__(self, folder: str, problems: list[str]) -> None:
        self._folder = folder
        self._problems = problems
        self._values: dict[str, MaybeSecret] = {}
        self._given: set[str] = set()

    def read(self, table: Mapping[str, Any]) -> SectionValues:
        kinds = {key.name: key.kind for key in keys_of("source")}
        for name, value in flat_keys(table, whole_names(OPTION_NAMES)):
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
            self._values["zookeeper.auth"] = login_in_folder(login, self._folder)
        return SectionValues("source", self._values, frozenset(self._given))

    def _take(self, option: str, value: Any, kind: KeyKind) -> None:
        try:
            if is_sensitive(option):
                self._values[option] = secret_in_folder(value, self._folder)
                return
            given = text_of(value, kind).strip(JAVA_BLANKS)  # as the source strips it
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
