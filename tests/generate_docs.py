"""Reads from the sources what the reference pages must contain, and generates the pages that need nothing else.

    python tests/generate_docs.py            names the generated files that are outdated; exit code 1 if there is one
    python tests/generate_docs.py --write    writes them

The sources are parsed and not imported, so a page does not depend on the installed packages.
``tests/unit/project/test_docs.py`` compares every page with the results of this module.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bridge.spark.pipeline.status.pipeline_metrics import PIPELINE_METRICS  # noqa: E402
from tests.pictures.picture_files import PICTURES  # noqa: E402
from tests.reference_pages import (  # noqa: E402
    command_options_page,
    command_outcomes_page,
    config_page,
    consumer_metrics_table,
    coordinator_config_page,
    development_broker_page,
    kafka_consumer_config_page,
    kafka_log_text_page,
    migrate_exit_codes_page,
    phases_page,
    pipeline_file_page,
    spark_option_page,
)
from zkconsumer.kafka.group.member_log_lines import ERROR_EVENTS, INFO_EVENTS, WARNING_EVENTS  # noqa: E402
from zkconsumer.observe.metric_names import ROWS  # noqa: E402
from zkconsumer.types import Hooks  # noqa: E402

REFERENCE = ROOT / "migration_docs" / "reference"
PICTURE_FOLDER = ROOT / "migration_docs" / "pictures"
KAFKAS_KEYS = ROOT / "tests" / "data" / "kafka-3.0.0-consumer-config.txt"
KAFKAS_DEFAULTS = ROOT / "tests" / "data" / "kafka-3.0.0-consumer-defaults.txt"

Sources: TypeAlias = Mapping[str, str]
"""Path below the project -> the text of the file."""

BASE = "ZkConsumerError"
ERRORS = "zkconsumer/errors.py"
WHO_ACTS = {
    "UsageError": "you",
    "PeerError": "the operator of the other side",
    "UnavailableError": "the operator of the servers",
    "MigrationError": "the operator of the migration",
    "InternalError": "the maintainers of this library",
}
LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR",
          "critical": "CRITICAL"}  # fmt: skip


def sources(packages: Iterable[str] = ("zkconsumer", "bridge")) -> dict[str, str]:
    """The packages without their test doubles."""
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    relative = {path.relative_to(ROOT).as_posix(): path for path in found}
    return {name: path.read_text("utf-8") for name, path in relative.items() if "/testing/" not in name}


def sources_that_log() -> dict[str, str]:
    """The sources whose log lines and counters have pages.

    ``zkconsumer``, the members of coordinator groups, the migrating members, the Spark source, and the page.
    """
    bridge = ROOT / "bridge"
    folders = (bridge / "spark", bridge / "client", bridge / "migration" / "dual" / "connector", bridge / "web")
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return sources(["zkconsumer"]) | {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in found}


# --- errors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ErrorClass:
    """One class of the source."""

    name: str
    path: str
    bases: tuple[str, ...]
    sentence: str


def error_classes(files: Sources) -> list[ErrorClass]:
    """Every public class that descends from ``ZkConsumerError``; ``errors.py`` first, each file in its own order.

    Fails for two classes of one name, and for one without a sentence: the page would give wrong advice.
    """
    classes = [
        ErrorClass(node.name, path, tuple(map(_last_name, node.bases)), _first_paragraph(ast.get_docstring(node) or ""))
        for path in sorted(files, key=lambda path: (path != ERRORS, path.startswith("bridge/"), path))
        for node in ast.walk(ast.parse(files[path]))
        if isinstance(node, ast.ClassDef)
    ]
    known = {BASE}
    while True:
        more = {each.name for each in classes if known.intersection(each.bases)} - known
        if not more:
            break
        known |= more
    found = [each for each in classes if each.name in known and not each.name.startswith("_")]
    assert len({each.name for each in found}) == len(found), "two errors have one name"
    for each in found:
        assert each.sentence.endswith("."), f"{each.path}: {each.name} a sentence must state the problem and the action"
    return found


def render_errors(files: Sources) -> str:
    """The page ``errors.md``."""
    classes = {each.name: each for each in error_classes(files)}

    def family(name: str) -> str:
        while name not in WHO_ACTS:
            name = next(base for base in classes[name].bases if base in classes)
        return name

    lines = [
        "# Errors",
        "",
        "<!-- Generated: python tests/generate_docs.py --write -->",
        "",
        f"Every error class of `zkconsumer` and of `bridge`, who must act, and what to do. Each is a `{BASE}` and",
        "belongs to one family. The sentence is the docstring of the class; the text of a caught error adds names and",
        "numbers.",
        "",
        "Errors of the Scala consumer have their names there. You can also catch an error as a class under *is also*.",
        "The command line ends with exit code 2 after a `UsageError` (`PreconditionFailed`: 4), with 5 after a",
        "`VerificationError`, with 6 after a `PartiallyDoneError`, with 7 after a `WaitTimeoutError`, and with 1",
        "after any other error.",
        "",
        "| family | who must act | the sentence |",
        "|---|---|---|",
        *(f"| [`{name}`](#{name.lower()}) | {who} | {classes[name].sentence} |" for name, who in WHO_ACTS.items()),
    ]
    for name in WHO_ACTS:
        inside = [each for each in classes.values() if each.name not in (BASE, name) and family(each.name) == name]
        lines += ["", f"## {name}", ""]
        if not inside:
            lines.append("Raised under its own name.")
            continue
        lines += ["| class | is also | the sentence | defined in |", "|---|---|---|---|"]
        lines += [
            f"| `{each.name}` | {', '.join(f'`{base}`' for base in each.bases if base != name) or '-'} "
            f"| {each.sentence} | `{each.path}` |"
            for each in inside
        ]
    return "\n".join(lines) + "\n"


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


# --- log lines and counters -------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class LogLine:
    """One place that logs an event: its name, its level, and the file."""

    name: str
    level: str
    path: str


def told_lines(files: Sources) -> set[LogLine]:
    """Events of the pure code: ``LogEvent(level, name, text)``, its shorthands, and pairs (level, name) for them."""
    found: set[LogLine] = set()
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _last_name(node.func) in ("LogEvent", "_log", "_log_once"):
                level, name = [*map(_text, node.args), "", ""][:2]
            elif isinstance(node, ast.Call) and _last_name(node.func) == "_retry_registration_later":
                level, name = "WARNING", _text(node.args[0])
            elif isinstance(node, ast.Tuple) and len(node.elts) == 2:
                level, name = map(_text, node.elts)
            else:
                continue
            if level in LEVELS.values() and name:
                found.add(LogLine(name, level, path))
    return found


def logged_lines(files: Sources) -> set[LogLine]:
    """The lines that are logged directly: ``log.warning("event-name key=value", …)``; the name is the first word."""
    found: set[LogLine] = set()
    for path, call in _calls(files, *LEVELS):
        level = LEVELS[_last_name(call.func)]
        if ast.unparse(call.func).startswith("log."):
            text = _text(call.args[0])
            assert text, f"{path}: a log line begins with its name, {ast.unparse(call)} does not"
            found.add(LogLine(text.split()[0].rstrip(":"), level, path))
    return found


def client_event_lines(files: Sources) -> set[LogLine]:
    """The events of the pure parts of the Kafka client, which logger ``zkconsumer.kafka`` writes.

    ``ClientLogEvent("LEVEL", "event-name", …)`` and, in a class that collects them,
    ``self._log_event("LEVEL", "event-name", key=value)``.
    """
    found: set[LogLine] = set()
    for path, call in _calls(files, "ClientLogEvent", "_log_event"):
        if len(call.args) > 1:
            level, name = map(_text, call.args[:2])
            if name:
                assert level in LEVELS.values(), f"{path}: {ast.unparse(call)} has no level"
                found.add(LogLine(name, level, path))
    return found


def noted_lines(files: Sources) -> set[LogLine]:
    """The events of the state machine of a coordinator group's member, which are also counters.

    ``pending_commands.log_event("event-name", key=value)``.
    """
    levels = dict.fromkeys(INFO_EVENTS, "INFO") | dict.fromkeys(WARNING_EVENTS, "WARNING")
    levels |= dict.fromkeys(ERROR_EVENTS, "ERROR")
    notes = [
        (path, call)
        for path, call in _calls(files, "log_event")
        if ast.unparse(call.func).endswith("pending_commands.log_event")
    ]
    found = {(_text(call.args[0]), path) for path, call in notes}
    assert levels.keys() <= {name for name, _ in found}, "a level for an event that is not logged"
    return {LogLine(name, levels.get(name, "DEBUG"), path) for name, path in found}


def loggers(files: Sources) -> dict[str, str]:
    """File -> the name of its logger."""
    found: dict[str, str] = {}
    for path, call in _calls(files, "getLogger"):
        if ast.unparse(call.func) == "logging.getLogger" and call.args:
            text = call.args[0]
            is_own_name = isinstance(text, ast.Name) and text.id == "__name__"
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found.setdefault(path, module if is_own_name else str(getattr(text, "value", "")))
    return found


def counted_names(files: Sources) -> dict[str, set[str]]:
    """Counter -> the files that increment it.

    ``IncrementCounter("commits", n)``, or ``IncrementCounter(name, n) for name, n in (("commits", n), …)`` in one
    function.
    """
    found: dict[str, set[str]] = {}
    for path, text in files.items():
        if "IncrementCounter" not in text and "counters.add" not in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef):
                continue
            counts = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _counts(node)]
            names = [_text(call.args[0]) for call in counts if call.args]
            if "" in names:
                pairs = [node for node in ast.walk(function) if isinstance(node, ast.Tuple) and len(node.elts) == 2]
                names += [_text(pair.elts[0]) for pair in pairs]
            for name in filter(None, names):
                found.setdefault(name, set()).add(path)
    for line in noted_lines(files):
        found.setdefault(line.name.replace("-", "_"), set()).add(line.path)
    return found


def _counts(call: ast.Call) -> bool:
    name = _last_name(call.func)
    return name == "IncrementCounter" or (name == "add" and ast.unparse(call.func).endswith("counters.add"))


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _calls(files: Sources, *names: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of functions whose last name is one of these, with their files.

    A file without these names is not parsed: parsing all of them takes two seconds.
    """
    for path, text in files.items():
        if not any(name in text for name in names):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _last_name(node.func) in names:
                yield path, node


# --- metrics and hooks ------------------------------------------------------------------------------------------

METRICS_INTRODUCTION = """\
# Metrics and hooks

<!-- Generated: python tests/generate_docs.py --write -->

The metrics of a member with their names for JSON and for Prometheus, and the hooks that your program can implement.
[Monitor a member with Prometheus](../how-to/monitor-a-member-with-prometheus.md) has the setup. See also:
[counters](counters.md). `bridge.KafkaConsumer` has Java's metrics: [below](#metrics-of-kafkaconsumer).

`connector.metrics()` returns all metrics, for `json.dumps`. `connector.dump_metrics(path)` replaces a file with them,
and `zkconsumer consume --metrics FILE` does so every 10 s and at the end. The names are those of the MBeans of the
Scala consumer from 0.8.2 on, and the attributes those of Yammer's library.

Each connector has its own metrics: connectors with one client id do not change each other's metrics, and the metrics
of a connector are deleted with it. No metric is updated for each record; rates are updated every 5 s.

The metrics of a broker (`brokerHost`, `brokerPort`) exist while the member reads from it. They are deleted when its
last fetcher thread ends: the broker stopped or has another address, or it leads none of the partitions that the
member owns (noticed after 10 s at most). The Scala consumer removes its `FetcherStats` in the same way. If the member
reads from the broker again, they begin at 0. The totals of all brokers only grow.

## Metrics

| MBean of the Scala consumer | kind | in Prometheus | meaning |
|---|---|---|---|
"""

METRICS_AFTER = """
A row without a name in Prometheus is the total of the next row. In Prometheus each metric also has the labels `member`,
`group` and `client_id`; times are in seconds, timers and histograms are summaries with quantiles, and every counter of
[counters](counters.md) is `zkconsumer_count_<name>_total`.

| kind | attributes |
|---|---|
| meter | `Count`, `MeanRate`, `OneMinuteRate`, `FiveMinuteRate`, `FifteenMinuteRate`, all rates per second |
| timer | the attributes of a meter, and those of a histogram, in ms |
| histogram | `Count`, `Min`, `Max`, `Mean`, `StdDev`; of the last 1024 values (Yammer weighs by age) the percentiles |
| | `50thPercentile`, `75thPercentile`, `95thPercentile`, `98thPercentile`, `99thPercentile`, `999thPercentile` |
| gauge | `Value` |

Not available: `ProducerRequestMetrics` (the Scala consumer sends its metadata requests with a producer's class), and
the attributes `EventType`, `RateUnit` and `LatencyUnit`, which are texts.

## Hooks

Pass the connector an object of your own class that derives from `zkconsumer.Hooks`:
`ZookeeperConsumerConnector(config, hooks=...)`. One thread calls the hooks, in the order of the events. At most 1000
calls wait for a slow hook; further calls are dropped and counted (`hooks_dropped`). An error of a hook is logged once
for each hook (`hook-raised`) and counted (`hooks_failed`). A close accepts no more calls, and waits a short time for
the waiting ones.

| hook | arguments | when |
|---|---|---|
"""


PIPELINE_METRICS_INTRODUCTION = """\
## Metrics of a pipeline

`zkconsumer pipeline run` serves them at `listen` in `[metrics]` of the
[pipeline file](pipeline-file.md); each has the label `pipeline`. They count from the start of the process.

| in Prometheus | kind | more labels | meaning |
|---|---|---|---|
"""


def render_metrics(_: Sources) -> str:
    """The page ``metrics.md``; the modules that it shows are imported."""
    rows = [
        f"| `{row.pattern}` | {row.kind.value} | {f'`{row.prometheus}`' if row.prometheus else '-'} | {row.sentence} |"
        for row in ROWS
    ]
    hooks = []
    for name, hook in vars(Hooks).items():
        if not name.startswith("_"):
            gets = ", ".join(f"`{each}`" for each in list(inspect.signature(hook).parameters)[1:]) or "-"
            hooks.append(f"| `{name}` | {gets} | {_first_paragraph(hook.__doc__ or '')} |")
    after = METRICS_AFTER + "\n".join(hooks)
    pipeline = [
        f"| `{row.name}` | {row.kind} | {'`topic`, `partition`' if row.is_by_partition else '-'} | {row.sentence} |"
        for row in PIPELINE_METRICS
    ]
    parts = [*rows, after, "", PIPELINE_METRICS_INTRODUCTION + "\n".join(pipeline), "", consumer_metrics_table.render()]
    return METRICS_INTRODUCTION + "\n".join(parts)


# --- the settings -----------------------------------------------------------------------------------------------


def kafkas_keys() -> dict[str, str]:
    """The keys of Kafka's own consumer, each with a valid value."""
    return _keys_of(KAFKAS_KEYS)


def kafkas_defaults() -> dict[str, str]:
    """The same keys, each with its default in Kafka 3.0."""
    return _keys_of(KAFKAS_DEFAULTS)


def _keys_of(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}


# --- the pages --------------------------------------------------------------------------------------------------

PAGES: Mapping[str, Callable[[Sources], str]] = {
    "errors.md": render_errors,
    "metrics.md": render_metrics,
    "config.md": lambda _: config_page.render(kafkas_keys()),
    "coordinator-config.md": lambda _: coordinator_config_page.render(kafkas_keys(), kafkas_defaults()),
    "kafka-consumer-config.md": lambda _: kafka_consumer_config_page.render(kafkas_keys(), kafkas_defaults()),
    "pipeline-file.md": lambda _: pipeline_file_page.render(),
    "spark-options.md": lambda _: spark_option_page.render_options(kafkas_keys()),
    "development-broker.md": lambda _: development_broker_page.render(),
    "kafka-log-texts.md": lambda _: kafka_log_text_page.render(),
    "command-options.md": lambda _: command_options_page.render(),
    "command-outcomes.md": lambda _: command_outcomes_page.render(),
    "migration-phases.md": lambda _: phases_page.render(),
    "migration-exit-codes.md": lambda _: migrate_exit_codes_page.render(),
}


def main() -> int:
    files = sources()
    stale = 0
    wanted_texts = {REFERENCE / name: render(files) for name, render in PAGES.items()}
    wanted_texts |= {PICTURE_FOLDER / name: draw() for name, draw in PICTURES.items()}
    for page, wanted in wanted_texts.items():
        if page.exists() and page.read_text("utf-8") == wanted:
            continue
        stale = 1
        if "--write" in sys.argv[1:]:
            page.write_text(wanted, "utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
        else:
            print(f"{page.relative_to(ROOT)} is not up to date: python tests/generate_docs.py --write", file=sys.stderr)
    return 0 if "--write" in sys.argv[1:] else stale


if __name__ == "__main__":
    sys.exit(main())
