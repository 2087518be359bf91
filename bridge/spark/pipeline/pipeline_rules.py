"""The rules of a pipeline file that concern several keys by their values, or several sections.  Pure.

Rules of one section that need no value (required, excluded and needed keys) are in the table ``pipeline_keys``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from bridge.spark.option_table import threads_of, topics_of
from bridge.spark.pipeline.pipeline_key import parse_postgres_url
from bridge.spark.pipeline.pipeline_keys import DECODE_SECTIONS
from bridge.spark.pipeline.section_values import SectionValues
from bridge.spark.pipeline.target_keys import OWN
from bridge.spark.pipeline.toml_values import local_folder, problem
from zkconsumer.errors import UsageError
from zkconsumer.member.topic_filter import Blacklist, Whitelist

SOURCE_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType")
"""Columns of the source that every row has."""

_VERIFYING_SSL_MODES = ("verify-ca", "verify-full")
_BROKERS = "kafka.bootstrap.servers"


def rule_problems(sections: Mapping[str, SectionValues]) -> list[str]:
    """A line for each broken rule (``section_values.problem``); a rule whose keys have problems is not checked."""
    rules = (
        _trigger, _columns, _headers, _connections, _ssl_modes, _folders, _tables, _delta_tables, _topics,
        _corrupt_records, _listeners,
    )  # fmt: skip
    return [line for rule in rules for line in rule(sections)]


def _trigger(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    trigger = sections["trigger"]
    if trigger.get("available-now") and "interval" in trigger.given:
        yield problem("trigger", "interval", "has no effect with available-now = true; remove one of them")


def _columns(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    """The columns of the decoded parts have different names; SQL does not distinguish case."""
    owners = {name.lower(): "the source" for name in SOURCE_COLUMNS}
    for section, part in DECODE_SECTIONS.items():
        if part == "headers" and not sections[section].given:
            continue
        for key in ("column", "rescued"):
            name = sections[section].get(key)
            if name is None:
                continue
            if (owner := owners.get(name.lower())) is not None:
                yield problem(section, key, f"{owner} has a column {name} already; choose another name")
            owners[name.lower()] = f"[{section}]"


def _headers(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    source = sections["source"]
    without = "includeHeaders" in source.given and str(source.get("includeHeaders")).lower() == "false"
    if without and sections["decode.headers"].given:
        yield problem(
            "decode.headers",
            "format",
            "there are no headers with includeHeaders = false in [source]; remove one of them",
        )


def _connections(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    """A section whose server is used must have one."""
    for section in ("sink", "dead-letters"):
        values = sections[section]
        connection = values.get("connection") or OWN
        if connection == "sink" and sections["sink"].format not in (None, values.format):
            yield problem(
                section, "connection",
                f'"sink" needs a [sink] of format {values.format}, and its format is {sections["sink"].format}; set '
                "the keys of the connection in this section",
            )  # fmt: skip
        if connection == "source" and _BROKERS not in sections["source"].given:
            yield problem(
                section, "connection",
                f'"source" needs {_BROKERS} in [source]; set it there, or set it here with connection = "{OWN}"',
            )  # fmt: skip


def _ssl_modes(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    for section in ("sink", "dead-letters"):
        values = sections[section]
        mode = values.get("ssl-mode")
        if {"ssl-root-certificate", "ssl-mode"} <= values.given and mode not in (None, *_VERIFYING_SSL_MODES):
            modes = " or ".join(_VERIFYING_SSL_MODES)
            yield problem(
                section, "ssl-root-certificate", f"has no effect with ssl-mode {mode}; set ssl-mode to {modes}"
            )


def lineage_folder(checkpoint: str) -> str:
    """The folder beside the checkpoint: the lineages of topics, and the places of Delta tables of a catalog."""
    return f"{checkpoint.rstrip('/')}-lineage"


def _folders(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    """No folder is another one, or in another one."""
    seen: list[tuple[str, str]] = []
    checkpoint = sections["checkpoint"].get("path")
    targets = sections["sink"], sections["dead-letters"]
    if checkpoint is not None and any(values.format == "topic" for values in targets):
        seen.append(("the lineage of topics", lineage_folder(checkpoint)))
    elif checkpoint is not None and any(values.format == "delta" and values.get("table") for values in targets):
        seen.append(("the places of Delta tables", lineage_folder(checkpoint)))
    for section in ("sink", "dead-letters", "checkpoint"):
        path = sections[section].get("path")
        if path is None:
            continue
        for other, other_path in seen:
            if _contains(path, other_path) or _contains(other_path, path):
                yield problem(
                    section, "path", f"is the folder of {other}, or one is in the other; choose another folder"
                )
        seen.append((f"[{section}]", path))


def _contains(outer: str, inner: str) -> bool:
    return f"{_place(inner).rstrip('/')}/".startswith(f"{_place(outer).rstrip('/')}/")


def _place(path: str) -> str:
    """A local folder without its scheme; each other path as it is."""
    local = local_folder(path)
    return path if local is None else posixpath.normpath(local)


def _tables(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    """Two tables of one database have two names."""
    seen: dict[tuple[object, ...], str] = {}
    for section in ("sink", "dead-letters"):
        values = sections[section]
        if values.format != "postgres":
            continue
        server = sections["sink"].get("url") if values.get("connection") == "sink" else values.get("url")
        if server is None:
            continue
        for key in ("table", "batch-table"):
            if values.get(key) is None:
                continue
            place = (parse_postgres_url(server), values.get("schema"), values.get(key))
            if place in seen:
                yield problem(section, key, f"{values.get(key)} is {seen[place]} already; choose another name")
            seen[place] = f"{key} of [{section}]"


def _delta_tables(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    """Rows and dead letters are in two tables of Spark's catalog; ``_folders`` compares paths."""
    sink, dead_letters = sections["sink"], sections["dead-letters"]
    if sink.format == dead_letters.format == "delta":
        table = dead_letters.get("table")
        if table is not None and str(sink.get("table")).lower() == table.lower():
            yield problem("dead-letters", "table", f"{table} is the table of [sink]; choose another name")


def _topics(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    """What the pipeline writes is not read again, and rows and dead letters are in different topics."""
    source, sink, dead_letters = sections["source"], sections["sink"], sections["dead-letters"]
    for values in (sink, dead_letters):
        topic, brokers = values.get("topic"), _brokers_of(values, sections)
        if topic is not None and brokers is not None and brokers == source.get(_BROKERS) and _is_read(source, topic):
            yield problem(
                values.section, "topic",
                f"[source] reads the topic {topic} of the same brokers, so the pipeline would read what it writes; "
                "choose another topic",
            )  # fmt: skip
    topic, brokers = sink.get("topic"), _brokers_of(sink, sections)
    is_same = topic == dead_letters.get("topic") and brokers == _brokers_of(dead_letters, sections)
    if topic is not None and brokers is not None and is_same:
        yield problem("dead-letters", "topic", "is the topic of [sink]; choose another topic")


def _brokers_of(values: SectionValues, sections: Mapping[str, SectionValues]) -> object:
    """The addresses of the brokers of a topic, as they are written; None if they are not known."""
    connection = values.get("connection") or OWN
    if connection == OWN:
        return values.get(_BROKERS)
    return _brokers_of(sections[connection], sections)


def _is_read(source: SectionValues, topic: str) -> bool:
    """Whether the source selects the topic; False if its selection has a problem."""
    try:
        if "subscribe" in source.given:
            return topic in topics_of(source.get("subscribe") or "")
        if "topics" in source.given:
            return topic in threads_of(source.get("topics") or "")
        if "subscribePattern" in source.given:
            return Whitelist(source.get("subscribePattern") or "").is_topic_allowed(topic, True)
        if "subscribe.blacklist" in source.given:
            return Blacklist(source.get("subscribe.blacklist") or "").is_topic_allowed(topic, True)
    except (UsageError, ValueError):
        return False
    return False


def _corrupt_records(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    is_dead_letter = str(sections["source"].get("onCorruptRecord")).lower() == "deadletter"
    if is_dead_letter and sections["dead-letters"].format == "none":
        yield problem(
            "source",
            "onCorruptRecord",
            "deadLetter needs the section [dead-letters] with a format; set it, or choose fail or skip",
        )


def _listeners(sections: Mapping[str, SectionValues]) -> Iterator[str]:
    listen = sections["metrics"].get("listen")
    if listen is not None and listen == sections["source"].get("metrics.listen") and not listen.endswith(":0"):
        yield problem(
            "metrics",
            "listen",
            f"{listen} is metrics.listen of [source], and the membership listens there; choose another port",
        )
