"""Runs the parts of the test suite and prints a table of the time that each took, in minutes.

    python tests/run_parts.py all|unit|delta|installed|site|nightly [pytest arguments]

A suite consists of stages, one after the other.  A stage has lanes: each takes the next part of the stage when it is
free, so the longest parts come first, and no lane ends much later than the others, however fast the machine is.  Each
part without servers is one pytest with folders of its own: each worker of pytest-xdist would collect all tests.  A part
with servers waits about half of its time, so a stage has twice as many lanes as cores, or one more.
Where a stage has one lane, the output is shown as it comes; else that of a part is shown when the part is over.  A part
that fails does not stop the others; the exit code is that of the first that failed.  In CI (``CI=true``) nothing is
skipped for want of Java, Maven, a broker or a browser: see ``tests/requirement_fixtures.py``.

``all`` fails if it takes more than ``LIMIT_MINUTES``.  It does not if the cache of the servers was empty, or if other
processes took a part of the processor: then the time shows nothing about the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.debian_packages import unreachable_packages  # noqa: E402
from zkconsumer.testing.sandbox import cache  # noqa: E402

PYTEST = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--durations=5", "--durations-min=10"]
NO_JAVA = ["-m", "not real and not nightly"]
ON_BOTH_CORES = ["-n", "4", "--dist", "worksteal"]
"""For the nightly tests without servers.  Many wait for a moment, and two workers more than cores use that; a worker
that has finished takes tests of others, so that no long file is waited for in the end.
"""


@dataclass(frozen=True)
class Part:
    """One row of the table; ``budget_minutes`` is what the part should take on two cores, beside the other lanes.

    ``with_extensions`` False: the Python modules take the place of the compiled ones.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    budget_minutes: float
    with_extensions: bool = True


def tool(name: str) -> str:
    """A command of the environment that runs this."""
    return str(Path(sys.executable).parent / name)


LINT = Part(
    "lint, import rules",
    (
        (tool("ruff"), "check", "--no-cache", "."),
        (tool("ruff"), "format", "--no-cache", "--check", "--quiet", "."),
        (tool("lint-imports"), "--no-cache"),
    ),
    0.5,
)
TYPES = Part("types", ((tool("mypy"),),), 0.5)
COLLECT = (sys.executable, "tests/collect_once.py")
COLLECT_ALL = Part("collect", ((*COLLECT, "tests"),), 1.5)
"""Before the workers of the nightly tests start, which would each do the work of the first collection: see its text."""


def without_servers(name: str, budget_minutes: float, *words: str) -> Part:
    """Folders of tests that take one to two minutes of CPU."""
    return Part(name, ((*PYTEST, *NO_JAVA, *words),), budget_minutes)


SPARK_AND_KAFKA = [f"tests/unit/{name}" for name in ("kafka", "project", "spark", "wire")]
UNIT_OF_KAFKA = without_servers("unit: Spark, Kafka, project", 4, *SPARK_AND_KAFKA)
UNIT_OTHERS = without_servers("unit: all others", 5, "tests/unit", *(f"--ignore={name}" for name in SPARK_AND_KAFKA))
HOSTILE = without_servers(
    "hostile, property, broker",
    6.5,
    *(f"tests/{name}" for name in ("broker", "commands", "conformance", "coordinator", "hostile", "interop")),
    *(f"tests/{name}" for name in ("mutations", "property", "sanitizers", "transcripts")),
)
MIGRATION_A_M = without_servers("migration a to m", 3, "tests/migration", "--ignore-glob=tests/migration/test_[n-z]*")
MIGRATION_N_Z = without_servers("migration n to z", 3, "tests/migration", "--ignore-glob=tests/migration/test_[a-m]*")
UNIT_PARTS = (HOSTILE, UNIT_OTHERS, UNIT_OF_KAFKA, MIGRATION_A_M, MIGRATION_N_Z)
"""Every test that starts no server; the longest first."""
READ_RECORDS = [
    *(f"tests/hostile/test_{name}_hostile.py" for name in ("records", "spark_decoder")),
    *(f"tests/property/test_{name}_property.py" for name in ("fetch_codec", "poison", "record_tables", "records")),
    *(f"tests/property/test_spark_{name}_property.py" for name in ("decoder", "stream")),
    *(f"tests/conformance/test_{name}_conformance.py" for name in ("broker", "records")),
    *(f"tests/unit/{name}" for name in ("kafka", "kafka_consumer", "spark", "wire")),
    *(f"tests/unit/test_{name}.py" for name in ("connector", "extensions", "interruptions", "javaapi_simple")),
    *(f"tests/unit/test_{name}.py" for name in ("many_connectors", "simple_consumer", "streams")),
    *(f"--ignore-glob=tests/unit/kafka/test_{name}*" for name in ("api_versions", "connection", "metadata", "network")),
    *(f"--ignore=tests/unit/kafka/test_{name}.py" for name in ("broker_channel", "fetch_session", "group_offsets")),
    "--ignore=tests/unit/kafka/test_offsets_channel.py",
    *(f"--ignore-glob=tests/unit/kafka_consumer/test_*{name}*" for name in ("config", "coordinator", "heartbeat")),
    *(f"--ignore=tests/unit/spark/{name}" for name in ("pipeline", "sink")),
    *(f"--ignore-glob=tests/unit/spark/test_spark_{name}*" for name in ("checkpoint", "claim", "environment", "error")),
    *(f"--ignore-glob=tests/unit/spark/test_spark_{name}*" for name in ("fault", "listener", "offsets", "options")),
    "--ignore-glob=tests/unit/spark/test_spark_query*",
]
"""The tests of what a compiled module does where there is one: records are decoded and handed out."""
WITHOUT = Part("unit without extensions", ((*PYTEST, *NO_JAVA, *READ_RECORDS),), 4.5, with_extensions=False)
MIXED_WITHOUT = Part(
    "mixed, without extensions",
    ((*PYTEST, "-m", "real and not nightly", "tests/real/test_mixed_groups.py", "-k", "3.9.1-0.10.2.2"),),
    1,
    with_extensions=False,
)
CONFORMANCE = Part("conformance, real servers", ((*PYTEST, "-m", "real and not nightly", "tests/conformance"),), 2)
REAL = Part("real members", ((*PYTEST, "-m", "real and not nightly", "tests/real"),), 10)
WEB = Part("the page in a browser", ((*PYTEST, "-m", "real and not nightly", "tests/web"),), 2)
WHOLE = Part("whole consumer", ((*PYTEST, "-m", "real and not nightly", "tests/whole_consumer"),), 2.5)
INTEROP = Part("modern groups", ((*PYTEST, "-m", "real and not nightly", "tests/interop", "tests/broker"),), 4.5)
MIGRATION = Part("migration", ((*PYTEST, "-m", "real and not nightly", "tests/migration"),), 7)
PIPELINE_TESTS, EXAMPLE_TESTS = "tests/spark/pipeline", "tests/spark/examples"
IN_PARTS_OF_PIPELINES = (f"--ignore={PIPELINE_TESTS}", f"--ignore={EXAMPLE_TESTS}")
SPARK = Part("Spark", ((*PYTEST, "-m", "real and not nightly", "tests/spark", *IN_PARTS_OF_PIPELINES),), 12)
PIPELINES = Part("pipelines", ((*PYTEST, "-m", "real and not nightly", PIPELINE_TESTS),), 10)
EXAMPLES = Part("examples of pipelines", ((*PYTEST, "-m", "real and not nightly", EXAMPLE_TESTS),), 3)
"""They start Spark in programs of their own, so they need not run in the process that has the session of the others."""
INSTALLED = Part("the installed wheel", ((sys.executable, "tests/run_installed.py", "build"),), 1)
SITE = Part("documentation site", ((sys.executable, "tests/build_site.py"),), 1.5)
EACH_PYTHON = Part("the wheel, each Python", ((sys.executable, "tests/run_installed.py", "pythons"),), 12)
DELTA = Part("Delta, pyspark 4.2", ((sys.executable, "tests/run_delta.py"),), 6.5)
NEWEST = Part("newest packages", ((sys.executable, "-m", "tox", "run", "-e", "newest"),), 8)
NIGHTLY_UNIT = Part("nightly without servers", ((*PYTEST, *ON_BOTH_CORES, "-m", "nightly and not real", "tests"),), 30)
NIGHTLY_MIGRATION = Part("nightly migration", ((*PYTEST, "-m", "nightly and real", "tests/migration"),), 60)
NIGHTLY_SPARK = Part(
    "nightly Spark",
    (
        (*PYTEST, "-m", "nightly and real", "tests/spark"),
        (sys.executable, "tests/run_delta.py", "-m", "nightly and real"),
    ),
    110,
)
NIGHTLY_WITHOUT = Part(
    "nightly without extensions",
    ((*PYTEST, "-m", "real", "tests/real", "tests/whole_consumer", "tests/spark/test_batch.py"),),
    40,
    with_extensions=False,
)
IN_OTHER_PARTS = [f"--ignore=tests/{name}" for name in ("delta", "migration", "spark")]
NIGHTLY_OTHERS = Part(
    "nightly real servers",
    ((*PYTEST, "-m", "nightly and real", "tests", *IN_OTHER_PARTS),),
    45,
)


@dataclass(frozen=True)
class Stage:
    """``parts``: the longest first.  ``lanes``: how many run at the same time."""

    parts: tuple[Part, ...]
    lanes: int = 1


SUITES = {
    "all": (
        Stage(
            (
                *(SPARK, REAL, PIPELINES, MIGRATION, DELTA),
                *(HOSTILE, INTEROP, UNIT_OTHERS, WHOLE, WITHOUT, UNIT_OF_KAFKA, MIGRATION_A_M, MIGRATION_N_Z, EXAMPLES),
                *(WEB, CONFORMANCE, SITE, MIXED_WITHOUT, INSTALLED, TYPES, LINT),
            ),
            lanes=5,
        ),
    ),
    "delta": (Stage((DELTA,)),),
    "installed": (Stage((INSTALLED,)),),
    "site": (Stage((SITE,)),),
    "unit": (Stage((*UNIT_PARTS, WITHOUT, SITE, TYPES, LINT), lanes=5),),
    "nightly": (
        Stage((COLLECT_ALL,)),
        Stage((NIGHTLY_UNIT,)),
        Stage((NIGHTLY_SPARK, NIGHTLY_MIGRATION, NIGHTLY_OTHERS, NIGHTLY_WITHOUT), lanes=2),
        Stage((EACH_PYTHON,)),
        Stage((NEWEST,)),
    ),
}
"""Name -> stages."""


LIMIT_MINUTES = {"all": 45.0}
"""Suite -> the longest time that it may take on two cores, with a filled cache and the processor to itself."""
OTHERS_SHARE_MAX = 0.1
"""The largest part of the processor's time that other processes may take when the limit is applied."""


@dataclass(frozen=True)
class Result:
    """How a part ended."""

    part: Part
    code: int
    seconds: float
    cpu_seconds: float
    """Of its processes, without servers that outlive it."""


def run(part: Part, extra: list[str], is_alone: bool) -> Result:
    """All commands of a part.  ``is_alone``: no other part runs at the same time."""
    if is_alone:
        print(f"\n=== {part.name} ===", flush=True)
    start = time.monotonic()
    code, output, cpu_seconds = 0, "", 0.0
    for command in part.commands:
        words = [*command, *(extra if "pytest" in command else [])]
        environment = dict(os.environ) if part.with_extensions else {**os.environ, "ZKCONSUMER_NO_EXTENSIONS": "1"}
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
            to = None if is_alone else file
            process = subprocess.Popen(words, cwd=ROOT, stdout=to, stderr=to and subprocess.STDOUT, env=environment)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            file.seek(0)
            output += file.read()
        code = process.returncode or code
        cpu_seconds += used.ru_utime + used.ru_stime
    if not is_alone:
        print(f"\n=== {part.name} ===\n{output}", flush=True)
    return Result(part, code, time.monotonic() - start, cpu_seconds)


def run_stage(stage: Stage, extra: list[str]) -> list[Result]:
    """Each lane takes the next part when it is free."""
    with ThreadPoolExecutor(stage.lanes) as pool:
        return list(pool.map(lambda part: run(part, extra, is_alone=stage.lanes == 1), stage.parts))


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds: work of all cores, their whole time, and the work of this process and its children."""

    busy: float
    total: float
    own: float


def processor_time() -> ProcessorTime | None:
    """Since the start of the machine and of this process; None where the system does not have /proc/stat."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = (int(ticks) for ticks in first.split()[1:9])
    second = os.sysconf("SC_CLK_TCK")
    busy = (user + nice + system + irq + softirq + steal) / second
    own = os.times()
    return ProcessorTime(busy, busy + (idle + iowait) / second, sum(own[:4]))


def others_share(before: ProcessorTime | None, after: ProcessorTime | None) -> float | None:
    """The part of the processor's time that other processes took; None if it is not known."""
    if before is None or after is None or after.total <= before.total:
        return None
    return (after.busy - before.busy - (after.own - before.own)) / (after.total - before.total)


def limit_problem(suite: str, minutes: float, share: float | None, *, is_cache_filled: bool) -> str:
    """Why the time of the suite is a failure; empty if it is none, or if it shows nothing about the tests."""
    limit = LIMIT_MINUTES.get(suite)
    if limit is None or minutes <= limit or not is_cache_filled or share is None or share > OTHERS_SHARE_MAX:
        return ""
    return (
        f"{suite} took {minutes:.1f} minutes, and the limit is {limit:.0f}: make a test shorter, or move a size or a "
        "combination to nightly that no promise rests on"
    )


def main() -> int:
    suite, extra = sys.argv[1], sys.argv[2:]
    start, before, is_cache_filled = time.monotonic(), processor_time(), any(cache.folder().iterdir())
    results = [result for stage in SUITES[suite] for result in run_stage(stage, extra)]
    print(f"\n{'part':<28}{'result':<10}{'minutes':>8}{'budget':>8}{'CPU':>8}")
    for each in results:
        ended = "ok" if each.code == 0 else f"exit {each.code}"
        minutes = (each.seconds / 60, each.part.budget_minutes, each.cpu_seconds / 60)
        print(f"{each.part.name:<28}{ended:<10}" + "".join(f"{number:>8.1f}" for number in minutes))
    minutes, share = (time.monotonic() - start) / 60, others_share(before, processor_time())
    cpu_minutes = sum(each.cpu_seconds for each in results) / 60
    print(f"{'all':<28}{'':<10}{minutes:>8.1f}{LIMIT_MINUTES.get(suite, ''):>8}{cpu_minutes:>8.1f}")
    print(
        "other processes took an unknown part" if share is None else f"other processes took {share:.0%}", "of the cores"
    )
    if unreachable := unreachable_packages():
        print(f"tests were skipped: Debian's archive did not deliver {', '.join(sorted(unreachable))}")
    problem = limit_problem(suite, minutes, share, is_cache_filled=is_cache_filled)
    print(problem, flush=True)
    return next((each.code for each in results if each.code), 1 if problem else 0)


if __name__ == "__main__":
    sys.exit(main())
