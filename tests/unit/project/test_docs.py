"""The pages say what the code does: names, files, tests, links, commands, log lines, counters, bytes.

What follows from the sources alone is generated (``tests/generate_docs.py``); everything else is written by people, and
held here to what can be checked.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from bridge.client.kafka_consumer.kafka_consumer_config import KafkaConsumerConfig
from bridge.coordinator.config import GroupCoordinatorConfig as BrokersGroupConfig
from bridge.migration.control.control_layout import (
    ABORT_CHILD,
    JOURNAL_CHILD,
    LEAVE_CHILD,
    LOCK_CHILD,
    MEMBERS_CHILD,
    accepted_piece_name,
    acl_piece_name,
    plan_piece_name,
    returned_piece_name,
)
from bridge.migration.control.control_znode import format_lock
from bridge.migration.dual.machine.acknowledgement import Acknowledgement, acknowledgement_path, format_acknowledgement
from bridge.migration.fences.fence_record import FenceRecord, format_fence_record
from bridge.spark.claims.query_runs import format_runs
from bridge.spark.claims.records import BatchClaim, ClaimRecord, format_record
from bridge.spark.group_pipeline import GroupPipeline, format_pipeline
from bridge.spark.option_table import BROKER_OPTIONS, GROUP_OPTIONS, SOURCE_OPTIONS
from tests.doc_citations import Row, ported_problems
from tests.generate_docs import (
    BASE,
    PAGES,
    PICTURE_FOLDER,
    PICTURES,
    REFERENCE,
    ROOT,
    WHO_ACTS,
    LogLine,
    client_event_lines,
    counted_names,
    kafkas_keys,
    logged_lines,
    loggers,
    noted_lines,
    sources,
    sources_that_log,
    told_lines,
)
from zkconsumer import errors as own_errors
from zkconsumer.cli import main
from zkconsumer.config import ConsumerConfig
from zkconsumer.kafka.group import errors as group_errors
from zkconsumer.kafka.group.group_member_config import GROUP_SETTINGS as MODERN
from zkconsumer.other_client_keys import java_client_keys
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import (
    ControlRecord,
    Registration,
    format_control,
    format_offset,
    format_owner,
    format_registration,
)

DOCS = ROOT / "migration_docs"
HOW_TO = DOCS / "how-to"
PARITY = REFERENCE / "parity.md"
NAMES = ROOT / "tests" / "data" / "original-names.txt"
OPTIONS = ROOT / "tests" / "data" / "original-options.txt"
DEFECTS = 60

VERDICTS = ("kept", "fixed", "ported", "dropped")

SHELLS = ("sh", "bash", "shell", "console", "")
RUNS = "<!-- runs -->"
FILE = re.compile(r"(?<![\w/.])(?:zkconsumer|bridge|tests|bench|migration_docs)/[\w./-]*[\w/](?:::\w+)?")
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", pages(), ids=page_id)


# --- reading a page ---------------------------------------------------------------------------------------------


def blocks(page: Path) -> Iterator[tuple[str, str, bool]]:
    """Fenced blocks: the language, the text, and whether it is marked to be run."""
    lines = iter(page.read_text("utf-8").splitlines())
    before = ""
    for line in lines:
        opened = re.fullmatch(r"(\s*)```(\w*)", line)
        if opened is not None:
            inside = []
            for each in lines:
                if each.strip() == "```":
                    break
                inside.append(each.removeprefix(opened[1]))
            yield opened[2], "\n".join(inside), before.strip() == RUNS
        if line.strip():
            before = line


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"(?ms)^\s*```.*?^\s*```$", "", page.read_text("utf-8"))


def table_rows(page: Path, columns: int) -> Iterator[list[str]]:
    """The rows of every table with so many columns, without heads and rules."""
    for line in page.read_text("utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("|") and len(cells) == columns and not set(cells[0]) <= set("-: "):
            yield cells


def code_in(text: str) -> list[str]:
    return CODE.findall(text)


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"(?m)^#+ +(.+)$", prose(page))
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


# --- files, tests, links ----------------------------------------------------------------------------------------


@every_page
def test_every_file_and_test_that_a_page_names_exists(page: Path) -> None:
    for named in {name for code in code_in(page.read_text("utf-8")) for name in FILE.findall(code) if "*" not in code}:
        path, _, test = named.partition("::")
        assert (ROOT / path).exists(), f"{named}: there is no such file"
        assert not test or f"def {test}(" in (ROOT / path).read_text("utf-8"), f"{named}: there is no such test"


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{target}: there is no such page"
        assert not anchor or anchor in anchors(there), f"{target}: there is no such heading"


def test_the_index_has_every_page() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / target).resolve() for target in LINK.findall(index.read_text("utf-8"))}
    missing = [page_id(page) for page in DOCS.rglob("*.md") if page not in linked | {index}]
    assert not missing, "migration_docs/README.md does not name these"


# --- commands and settings --------------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[str]:
    """``zkconsumer …`` in shell blocks and in words."""
    for language, text, _ in blocks(page):
        if language in SHELLS:
            for line in text.replace("\\\n", " ").splitlines():
                for part in re.split(r"\s*(?:&&|\|\||[|;])\s+", line.strip().removeprefix("$ ")):
                    yield from _command_in(part)
    for code in code_in(prose(page)):
        yield from _command_in(code)


def _command_in(text: str) -> Iterator[str]:
    found = re.fullmatch(r"(?:\S*/)?(zkconsumer(?: .*)?)", text.strip())
    if found is not None:
        yield re.split(r"\s+(?:[#<>&]|2>)", found[1])[0]


def parse(command: str) -> None:
    """Through click's own parser: every command and option must be known.  Values are not looked at."""
    _, *words = shlex.split(command)
    words = [word for word in words if word not in ("…", "...")]
    node: click.Command = main
    context = click.Context(main, info_name="zkconsumer")
    while True:
        options, rest, _ = node.make_parser(context).parse_args(args=words)
        wants_help = bool(set(options) & {"help", "version"})
        if not isinstance(node, click.Group):
            assert not rest, f"{command}: too many arguments: {rest}"
            return
        if not rest:
            assert not words or wants_help, f"{command}: a command is missing"
            return
        name, found, words = node.resolve_command(context, rest)
        assert found is not None
        node, context = found, click.Context(found, info_name=name, parent=context)


@every_page
def test_every_command_that_a_page_shows_is_known(page: Path) -> None:
    for command in commands(page):
        try:
            parse(command)
        except click.UsageError as error:
            pytest.fail(f"{command}: {error.format_message()}")


def test_commands_are_found_where_pages_show_them() -> None:
    shown = {tuple(command.split()[1:2]) for page in pages() for command in commands(page)}
    assert {("consume",), ("assign",), ("check",), ("sandbox",), ("demo",)} <= shown


@pytest.mark.parametrize(
    "wrong", ["zkconsumer consum", "zkconsumer consume --topik t", "zkconsumer sandbox sideways", "zkconsumer demo all"]
)
def test_a_command_that_is_not_known_is_found(wrong: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(wrong)


def known_keys() -> set[str]:
    of_brokers = {each.metadata["kafka.key"] for each in fields(BrokersGroupConfig)}
    of_spark = SOURCE_OPTIONS.keys() | GROUP_OPTIONS.keys() | BROKER_OPTIONS.keys()
    of_members = {row.key for config in (ConsumerConfig, KafkaConsumerConfig) for row in config.describe()}
    return of_members | of_spark | MODERN.keys() | of_brokers


KEYS_OF_OTHERS = {
    "auto.create.topics.enable": "of brokers",
    "connections.max.reauth.ms": "of brokers",
    "key.separator": "of ConsoleConsumer",
    "max.message.bytes": "of topics",
    "metadata.broker.list": "of librdkafka",
    "queued.min.messages": "of librdkafka",
    **dict.fromkeys(
        ("consumer.fetchsizebytes", "consumer.forcefromstart", "zookeeper.consumer.path"), "of kafka-spark-consumer"
    ),
    "zookeeper.quorum": "of Secor",
    **dict.fromkeys(
        ("deserializer.encoding", "key.deserializer.encoding", "value.deserializer.encoding"),
        "of deserializers",
    ),
}
"""Key that begins like one of ours -> what reads it."""

TABLES_OF_KEYS = (REFERENCE / "config.md", REFERENCE / "development-broker.md")
"""What they say is what there is; the second is about a broker's own keys."""


@pytest.mark.parametrize("page", [page for page in pages() if page not in TABLES_OF_KEYS], ids=page_id)
def test_every_setting_that_a_page_names_is_known(page: Path) -> None:
    ours = known_keys()
    known = ours | kafkas_keys().keys() | set(java_client_keys()) | KEYS_OF_OTHERS.keys()
    first_words = {key.partition(".")[0] for key in ours} - {"kafka"}
    for code in code_in(page.read_text("utf-8")):
        key = code.partition("=")[0].strip()
        looks_like_one = re.fullmatch(r"[a-z]+(\.[a-z]+)+", key) and key.partition(".")[0] in first_words
        if looks_like_one and not key.endswith((".py", ".md", ".properties", ".jsonl")):
            assert key in known, f"{code}: there is no such setting"


# --- python -----------------------------------------------------------------------------------------------------


def python_blocks(marked: bool) -> list[Any]:
    return [
        pytest.param(text, id=f"{page_id(page)}-{number}")
        for page in pages()
        for number, (language, text, runs) in enumerate(blocks(page))
        if language == "python" and (runs or not marked)
    ]


@pytest.mark.parametrize("text", python_blocks(marked=False))
def test_python_that_a_page_shows_is_python_and_imports_what_exists(text: str) -> None:
    files = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): ROOT / name for name in _all_files()}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zkconsumer"):
            assert node.module in files, f"there is no module {node.module}"
            source = files[node.module].read_text("utf-8")
            for alias in node.names:
                is_module = f"{node.module}.{alias.name}" in files
                assert is_module or re.search(rf"\b{alias.name}\b", source), f"no {alias.name} in {node.module}"


def _all_files() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / "zkconsumer").rglob("*.py")]


@pytest.mark.parametrize("text", python_blocks(marked=True))
def test_python_that_is_marked_runs(text: str) -> None:
    inside: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, "page", "exec"), inside)
    tests = [value for name, value in inside.items() if name.startswith("test_")]
    assert tests, "a marked block holds tests"
    for test in tests:
        test()


# --- the parity page --------------------------------------------------------------------------------------------


def parity_rows() -> dict[str, tuple[str, str, str]]:
    rows = {}
    for name, verdict, here, test in table_rows(PARITY, 4):
        if verdict in VERDICTS:
            [original] = code_in(name)
            assert original not in rows, f"{original} has two rows"
            rows[original] = verdict, here, test
    return rows


def defect_rows() -> dict[int, tuple[str, str, str]]:
    return {int(cells[0]): (cells[2], cells[3], cells[4]) for cells in table_rows(PARITY, 5) if cells[0].isdigit()}


def better_rows() -> list[list[str]]:
    after = PARITY.read_text("utf-8").partition("## Better than the Scala consumer")[2]
    return [cells for cells in table_rows(PARITY, 4) if f"| {cells[0]} |" in after and cells[0] != "what"]


def test_every_name_of_the_original_has_a_row() -> None:
    names = {line for line in NAMES.read_text("utf-8").splitlines() if line and not line.startswith("#")}
    assert names - set(parity_rows()) == set(), "these have no row"
    assert set(parity_rows()) - names == set(), "these are no names of the original"


@pytest.mark.parametrize("name", list(parity_rows()))
def test_a_row_of_the_parity_page_names_what_there_is(name: str) -> None:
    verdict, here, test = parity_rows()[name]
    files = [ROOT / path for path in FILE.findall(here)]
    if verdict in ("kept", "fixed"):
        assert files, "where?"
    if verdict == "dropped":
        assert here, "why?"
    else:
        assert FILE.findall(test), "which test shows it?"
    source = "\n".join(path.read_text("utf-8") for path in files if path.is_file())
    for code in code_in(here):
        last = code.rpartition(".")[2]
        is_a_name = re.fullmatch(r"[A-Za-z_]\w*", last) and not FILE.match(code) and not code.startswith("zkconsumer ")
        if files and is_a_name and code not in known_keys():
            assert re.search(rf"\b{last}\b", source), f"{code} is not in {files}"


@cache
def every_setting() -> frozenset[str]:
    """Those that act, and those of the original and of other programs that are set aside."""
    tables = ("zkconsumer/config_tables/", "zkconsumer/other_client_keys.py")
    rows = parity_rows().items()
    return frozenset(known_keys() | {name for name, (_, here, _) in rows if any(table in here for table in tables)})


@pytest.mark.parametrize("name", [name for name, (*_, test) in parity_rows().items() if FILE.findall(test)])
def test_the_tests_of_a_row_of_the_parity_page_use_its_names(name: str) -> None:
    verdict, here, test = parity_rows()[name]
    if verdict == "ported":
        assert list(ported_problems(name, test)) == []
    else:
        assert list(Row(f"`{name}`", here, test, every_setting()).problems()) == []


def test_the_tests_of_a_defect_and_of_what_is_better_use_the_files_of_their_row() -> None:
    rows = [(f"{what} {where}", test) for what, where, test in defect_rows().values()]
    rows += [(f"{head} {what} {where}", test) for head, what, where, test in better_rows()]
    wrong = {here: list(Row("", here, test, every_setting()).problems_of_prose()) for here, test in rows}
    assert {here: problems for here, problems in wrong.items() if problems} == {}


def option_sections() -> dict[str, str]:
    """The text below each head "Options of …", by head."""
    text = PARITY.read_text("utf-8")
    return dict(re.findall(r"(?ms)^### Options of ([^\n]+)\n(.*?)(?=^##)", text))


@pytest.mark.parametrize("line", [line for line in OPTIONS.read_text("utf-8").splitlines() if line[0] != "#"])
def test_every_option_of_a_tool_is_accounted_for(line: str) -> None:
    tool, *options = line.split()
    head = f"{tool} {options.pop(0)}" if options[0] == "--reset-offsets" else tool
    [text] = [text for heads, text in option_sections().items() if head in re.split(r", | and ", heads)]
    missing = [option for option in options if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)]
    assert not missing, f"{head}: the page does not say what became of these"


def test_every_known_defect_has_a_row() -> None:
    assert list(defect_rows()) == list(range(1, DEFECTS + 1))


@pytest.mark.parametrize("number", list(defect_rows()))
def test_a_row_of_a_defect_says_where_and_by_which_test(number: int) -> None:
    what, where, test = defect_rows()[number]
    assert what.startswith(("fixed", "kept", "does not arise")), what
    if not what.startswith("does not arise"):
        assert FILE.findall(where), "where?"
        assert FILE.findall(test), "which test shows it?"


def test_what_is_better_names_its_test() -> None:
    rows = better_rows()
    assert rows
    for what, _, where, test in rows:
        assert FILE.findall(where), what
        assert FILE.findall(test), what


# --- pages that are generated, and pages that are checked -------------------------------------------------------


@pytest.mark.parametrize("name", list(PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    page = REFERENCE / name
    assert page.read_text("utf-8") == PAGES[name](sources()), "python tests/generate_docs.py --write"


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_drawing_is_up_to_date_and_a_page_shows_it(name: str) -> None:
    assert (PICTURE_FOLDER / name).read_text("utf-8") == PICTURES[name](), "python tests/generate_docs.py --write"
    assert any(f"pictures/{name})" in page.read_text("utf-8") for page in pages()), "no page shows it"


def test_the_errors_of_both_packages_are_on_the_page() -> None:
    shown = {code_in(cells[0])[0] for cells in table_rows(REFERENCE / "errors.md", 4) if "`" in cells[0]}
    for home in (own_errors, group_errors):
        named = {name for name, kind in vars(home).items() if getattr(kind, "__module__", "") == home.__name__}
        assert named - shown <= {BASE, *WHO_ACTS}, f"{home.__name__} has more"


@cache
def lines_of_the_code() -> tuple[frozenset[LogLine], frozenset[LogLine], frozenset[LogLine]]:
    """What is told, logged and noted; reading it out of the sources takes a second."""
    files = sources_that_log()
    return frozenset(told_lines(files)), frozenset(logged_lines(files)), frozenset(noted_lines(files))


@cache
def client_events_of_the_code() -> frozenset[LogLine]:
    """The events of the pure parts of the Kafka client."""
    return frozenset(client_event_lines(sources_that_log()))


def test_the_log_lines_are_those_of_the_code() -> None:
    all_told, all_logged, all_noted = lines_of_the_code()
    told = {(line.name, line.level) for line in all_told}
    logger_of = loggers(sources_that_log())
    logged = {(line.name, line.level, logger_of[line.path]) for line in all_logged}
    logged |= {(line.name, line.level, "zkconsumer.member") for line in all_noted}
    logged |= {(line.name, line.level, "zkconsumer.kafka") for line in client_events_of_the_code()}
    shown_told, shown_logged = set(), set()
    for event, levels, third, _ in table_rows(REFERENCE / "log-lines.md", 4):
        for name in code_in(event):
            for level in levels.split(", "):
                if third.startswith("`zkconsumer."):
                    shown_logged.add((name, level, third.strip("`")))
                else:
                    shown_told.add((name, level))
    assert shown_told == told
    assert shown_logged == logged


def test_the_keys_of_the_log_lines_are_in_the_code() -> None:
    files = sources_that_log()
    told, logged, noted = lines_of_the_code()
    logged |= noted | client_events_of_the_code()
    for event, _, third, fourth in table_rows(REFERENCE / "log-lines.md", 4):
        is_logged = third.startswith("`zkconsumer.")
        for name in code_in(event):
            lines = logged if is_logged else told
            text = "".join(files[line.path] for line in lines if line.name == name)
            text += "" if is_logged else "".join(text for path, text in files.items() if "/member/" in path)
            keys = [code for code in code_in(fourth if is_logged else third) if re.fullmatch(r"[a-z_]+", code)]
            missing = [key for key in keys if f"{key}=" not in text and f'("{key}", ' not in text]
            assert not missing, f"{name} has no such keys"


def test_each_line_that_the_group_tells_is_explained() -> None:
    page = HOW_TO / "when-a-member-has-no-assignment.md"
    explained = {code for cells in table_rows(page, 4) for code in code_in(cells[0])}
    told, logged, _ = lines_of_the_code()
    assert {line.name for line in told} - explained == set()
    known = {line.name for line in told | logged | client_events_of_the_code()}
    assert explained - known == set(), "there are no such lines"


def test_the_counters_are_those_of_the_code() -> None:
    shown = [code_in(cells[0])[0] for cells in table_rows(REFERENCE / "counters.md", 4) if "`" in cells[0]]
    assert sorted(shown) == sorted(counted_names(sources_that_log()))


CONTROL_CHILDREN = (
    plan_piece_name(0),
    accepted_piece_name(0),
    acl_piece_name(0),
    returned_piece_name(0),
    JOURNAL_CHILD,
    LOCK_CHILD,
    ABORT_CHILD,
    LEAVE_CHILD,
    MEMBERS_CHILD,
)


def test_the_znodes_are_those_of_the_code() -> None:
    at = TopicPartition("T", 0)
    made = {
        paths.CONSUMERS, paths.group_root("G"), paths.ids("G"), paths.registration("G", "C"), paths.owners("G"),
        paths.owners_of_topic("G", "T"), paths.owner("G", at), paths.offsets("G"), paths.offsets_of_topic("G", "T"),
        paths.offset("G", at), paths.BROKER_IDS, paths.broker(0), paths.BROKER_TOPICS, paths.topic("T"),
        paths.partition_state(at), paths.control("G"), paths.SPARK_CLAIMS, paths.fence_child("G", at),
        *(paths.control_child("G", name) for name in CONTROL_CHILDREN), acknowledgement_path("G", "C"),
        paths.claims("G"), paths.claims_of_query("G", "Q"), paths.claims_of_topic("G", "Q", "T"),
        paths.claims_of_partition("G", "Q", at), paths.pipelines("G"), paths.running_pipeline("G"),
    }  # fmt: skip
    expected = {
        path.replace("/T/partitions/0", "/T/partitions/P").replace("/T/0", "/T/P").replace("/ids/0", "/ids/N")
        for path in made
    }
    shown = {code for cells in table_rows(REFERENCE / "znodes.md", 5) for code in code_in(cells[0]) if code[0] == "/"}
    assert shown == expected


def test_the_bytes_of_the_znodes_are_those_of_the_code() -> None:
    shown = {text for _, text, _ in blocks(REFERENCE / "znodes.md")}
    thread = "g1_host-1416246370000-55ddbc44-0"
    written = {
        format_registration(Registration("static", {"clicks": 2, "views": 1}, "1416246370000")),
        format_owner(thread),
        format_offset(42),
        format_control(ControlRecord("m1", 1, "planned", "zookeeper", "copy")),
        format_fence_record(FenceRecord("m1", 2)),
        format_acknowledgement(Acknowledgement("m1", 2, "locked", 3, 0)),
        format_lock("alice@host, process 4711", 1416246370000),
        format_record(
            ClaimRecord(tuple(BatchClaim(*of, 4294967342, 1416246370000) for of in ((6, 0, 500), (7, 500, 900))), 8)
        ),
        format_runs(("0d9a4c5a6c1b4d7f8b0e3a2f1c4d5e6f",)),
        format_pipeline(
            GroupPipeline(
                "5d8a4c5a-6c1b-4d7f-8b0e-3a2f1c4d5e6f", "clicks", "/data/clicks/checkpoint", "host-1", 4711,
                1416246370000, "0d9a4c5a6c1b4d7f8b0e3a2f1c4d5e6f",
            )
        ).encode(),
    }  # fmt: skip
    assert {data.decode() for data in written} | {thread.rpartition("-")[0]} == shown
