"""One name for one thing: classes, files, log events, and the terms that only this project has."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.figures import PACKAGES, ROOT, modules

GLOSSARY = ROOT / "migration_docs" / "reference" / "glossary.md"
TERMS_OF_OURS_MAX = 10

KAFKA_CLASSES = {
    "ConsumerConnector": ("kafka.consumer.ConsumerConnector", "kafka.javaapi.consumer.ConsumerConnector"),
    "ConsumerIterator": ("kafka.consumer.ConsumerIterator",),
    "ConsumerRebalanceListener": ("kafka.javaapi.consumer.ConsumerRebalanceListener",),
    "FetchRequest": ("kafka.api.FetchRequest", "org.apache.kafka.common.requests.FetchRequest"),
    "FetchRequestBuilder": ("kafka.api.FetchRequestBuilder",),
    "FetchResponse": ("kafka.javaapi.FetchResponse", "org.apache.kafka.common.requests.FetchResponse"),
    "GroupCoordinatorResponse": ("kafka.javaapi.GroupCoordinatorResponse",),
    "KafkaStream": ("kafka.consumer.KafkaStream",),
    "MessageAndMetadata": ("kafka.message.MessageAndMetadata",),
    "OffsetCommitRequest": ("kafka.api.OffsetCommitRequest", "org.apache.kafka.common.requests.OffsetCommitRequest"),
    "OffsetCommitResponse": ("kafka.api.OffsetCommitResponse", "kafka.javaapi.OffsetCommitResponse"),
    "OffsetFetchRequest": ("kafka.api.OffsetFetchRequest", "org.apache.kafka.common.requests.OffsetFetchRequest"),
    "OffsetFetchResponse": ("kafka.api.OffsetFetchResponse", "kafka.javaapi.OffsetFetchResponse"),
    "OffsetRequest": ("kafka.javaapi.OffsetRequest",),
    "OffsetResponse": ("kafka.javaapi.OffsetResponse",),
    "PartitionMetadata": (
        "kafka.javaapi.PartitionMetadata",
        "org.apache.kafka.common.requests.MetadataResponse.PartitionMetadata",
    ),
    "PartitionsLostListener": ("org.apache.kafka.clients.consumer.ConsumerRebalanceListener.onPartitionsLost",),
    "RangeAssignor": ("kafka.consumer.RangeAssignor", "org.apache.kafka.clients.consumer.RangeAssignor"),
    "RoundRobinAssignor": (
        "kafka.consumer.RoundRobinAssignor",
        "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    ),
    "SimpleConsumer": ("kafka.consumer.SimpleConsumer", "kafka.javaapi.consumer.SimpleConsumer"),
    "SubscriptionState": ("org.apache.kafka.clients.consumer.internals.SubscriptionState",),
    "TopicEventHandler": ("kafka.consumer.TopicEventHandler",),
    "TopicMetadata": ("kafka.javaapi.TopicMetadata",),
    "TopicMetadataResponse": ("kafka.javaapi.TopicMetadataResponse",),
    "ZookeeperTopicEventWatcher": ("kafka.consumer.ZookeeperTopicEventWatcher",),
}
"""Classes that may exist in two modules, with the classes of Kafka whose names they have."""

FILES_OF_SEVERAL_FOLDERS = {
    "__init__.py", "__main__.py", "commands.py", "config.py", "errors.py", "events.py", "metadata.py", "metrics.py",
    "records.py",
}  # fmt: skip

LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
LOGGERS = {"log", "_log"}
CLIENT_EVENTS = {"ClientLogEvent", "self._log_event"}
LOG_LINE = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?: [a-z_]+=|: |\Z)|(?:[a-z]+(?:-[a-z0-9]+)*|%s) (?:[a-z_]+=)?%s")
"""``event-name key=value …``, ``event-name: sentence``, ``event-name``; ``%s`` where a caller gives the event."""


@dataclass
class DefinedNames:
    """What the modules of the product define: the files of each class, and (file, line, format) of each log call."""

    classes: dict[str, set[str]]
    log_lines: list[tuple[Path, int, str]]


@cache
def product() -> DefinedNames:
    """Three tests read it, and parsing takes four seconds.  The trees are not kept: they are 150 MB."""
    found = DefinedNames(defaultdict(set), [])
    for file in modules(ROOT):
        path, tree = file.relative_to(ROOT), ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.classes[node.name].add(path.as_posix())
        found.log_lines += [(path, number, text) for number, text in log_lines(tree)]
    return found


def log_lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line number and the format of each log call; ``{}`` stands for an expression."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name(logger), level), args) if logger in LOGGERS and level in LEVELS:
                match args[1 if level == "log" else 0]:
                    case ast.Constant(str(text)):
                        yield node.lineno, text
                    case ast.JoinedStr(values):
                        parts = (str(each.value) if isinstance(each, ast.Constant) else "{}" for each in values)
                        yield node.lineno, "".join(parts)
                    case other:
                        yield node.lineno, f"not a text: {ast.unparse(other)}"
            case ast.Call(func, [_, ast.Constant(str(name)), *_]) if ast.unparse(func) in CLIENT_EVENTS:
                yield node.lineno, name
            case _:
                pass


def terms_of_ours() -> list[str]:
    """The terms in the last table of the glossary."""
    table = GLOSSARY.read_text("utf-8").rpartition("## Terms of this project")[2]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


def test_a_class_name_exists_once_unless_it_is_one_of_kafka() -> None:
    several = {name: sorted(paths) for name, paths in product().classes.items() if len(paths) > 1}
    assert {name: paths for name, paths in several.items() if name not in KAFKA_CLASSES} == {}
    assert sorted(several) == sorted(KAFKA_CLASSES), "the list has no entry that is not needed"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_file_name_exists_once_in_a_package(package: str) -> None:
    folders = defaultdict(list)
    for path in modules(ROOT):
        inside = path.relative_to(ROOT)
        if inside.parts[0] == package:
            folders[path.name].append(inside.as_posix())
    several = {name: paths for name, paths in folders.items() if len(paths) > 1}
    assert {name: paths for name, paths in several.items() if name not in FILES_OF_SEVERAL_FOLDERS} == {}


def test_each_log_line_begins_with_its_event() -> None:
    lines = product().log_lines
    assert len(lines) > 100
    assert [line for line in lines if not LOG_LINE.match(line[2])] == []


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("fetch-failed broker=%s reason=%r", True),
        ("listening", True),
        ("no-offsets: nothing is stored", True),
        ("%s member=%s %s", True),
        ("log-truncated %s", True),
        ("consumed offset: %d doesn't match", False),
        ("Fetch_Failed broker=%s", False),
        ("fetch failed broker=%s", False),
        ("not a text: words", False),
    ],
)
def test_what_is_the_form_of_a_log_line(text: str, is_right: bool) -> None:
    assert (LOG_LINE.match(text) is not None) == is_right


def test_the_glossary_has_few_terms_that_only_this_project_has() -> None:
    terms = terms_of_ours()
    assert 0 < len(terms) < TERMS_OF_OURS_MAX
    pages = " ".join(path.read_text("utf-8") for path in (ROOT / "migration_docs").rglob("*.md") if path != GLOSSARY)
    classes, pages = product().classes, pages.lower()
    unused = [term for term in terms if term not in pages and term.title().replace(" ", "") not in classes]
    assert unused == []
