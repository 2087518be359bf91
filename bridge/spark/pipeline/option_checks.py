"""Checks options of the source as ``format("zkconsumer")`` does, before there are secrets.  Pure, as that check is.

``bridge.spark.options`` checks texts.  In the place of each secret it gets a valid one, and so it does for required
options that are missing, which the caller reports itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from bridge.spark.options import option_problems, read_options
from bridge.spark.pipeline.option_keys import (
    KEYS_OF_CONSUMER_CONFIG,
    OPTIONS_OF_PIPELINE,
    SOURCE_DEFAULTS,
    TOPIC_WAYS,
    is_sensitive,
)
from bridge.spark.pipeline.secret_reference import MaybeSecret, SecretReference
from bridge.spark.pipeline.toml_values import problem
from zkconsumer.config_tables.jaas import PLAIN_MODULE, SCRAM_MODULE

_OPTION_KEYS = re.compile(r"([A-Za-z][\w.]*(?:(?: and |, )[A-Za-z][\w.]*)*)(=|: | (?=is |are |cannot ))")

_VALID_OPTIONS: Mapping[str, str] = {
    "zookeeper.connect": "zookeeper.invalid:2181", "group.id": "unset", "subscribe": "unset",
}  # fmt: skip
"""Placeholders of the required options: with them a check has no problem of its own."""


def checked_options(section: str, options: Mapping[str, MaybeSecret], given: Collection[str] = ()) -> list[str]:
    """The problems of options of the source, as lines; ``given``: also those options that have a problem already."""
    lines = option_problems(_checked_texts(section, options, given), is_stream=True)
    file = "consumer.config" if "consumer.config" in options else ""  # its own problems name no option
    own = [problem(section, name, "the pipeline sets it; remove it") for name in OPTIONS_OF_PIPELINE if name in options]
    return own + [_option_line(section, line, file) for line in lines]


def option_warnings(options: Mapping[str, MaybeSecret]) -> Mapping[str, str]:
    """Options of the source that have no effect -> why.  They must have no problem."""
    return read_options(_checked_texts("source", options, options.keys()), is_stream=True).warnings


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
