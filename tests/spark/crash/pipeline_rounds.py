"""A round of the pipeline's matrix: crashes that share three drivers.

driver A: pipelines to be killed, each up to its point     |  driver B starts
driver A and all that it has started: SIGKILL              |
driver B: repeats their commands                           |  and runs the pipelines to be stopped, up to their points
driver B and all that it has started: SIGSTOP              |  driver C starts
driver C: repeats the commands of these, to their ends     |
driver B: SIGCONT; its pipelines end                       |  nothing has changed

    python -m tests.spark.crash.pipeline_rounds CRASH...   plays these crashes (texts as in the results)
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bridge.spark.pipeline.sinks.delta_session import delta_settings
from tests.run_delta import ensure_pyspark
from tests.spark.crash.lab import Driver, last_ends
from tests.spark.crash.pipeline_cases import (
    BACKFILL,
    CHECKPOINTED,
    CLAIMED,
    DECODED,
    DELTA,
    FETCHED,
    KILL,
    PARQUET,
    POSTGRES,
    REPLAY,
    RUN,
    STOP,
    TOPIC,
    PipelineCrash,
    crash_of,
    rounds_of,
)
from tests.spark.crash.pipeline_input import (
    NUMBER,
    NUMBER_OF,
    PARTITIONS,
    PER_BATCH,
    SCHEMA,
    WHERE,
    skipped_offsets,
    starting_offsets,
    values_of,
)
from tests.spark.crash.pipeline_judge import PipelineVerdict, changes, judge
from tests.spark.crash.pipeline_state import PipelineState, read_state
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox, ensure_delta_jars
from zkconsumer.testing.sandbox.postgres_process import DATABASE, USER, PostgresServer, run_postgres
from zkconsumer.testing.sandbox.waiting import HOST, pause_ms

BROKER = "1.1.1"
"""It has headers."""

SESSION_MS = 6_000
PHASE_TIMEOUT_MS = 800_000
"""How long a phase of a round may take: less than pipelines wait at their points.  An idle machine needs a minute."""

DELTA_SETTINGS = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
"""As in ``tests/delta/conftest.py``."""

TASKS_AT_A_TIME = 6
"""Besides those that wait at a point and keep their places."""

TASKS_OF_A_BATCH = 2 * len(PARTITIONS)
"""A batch reads two ranges of each partition: it passes over an offset between them."""

AGAIN = "python -m tests.spark.crash.pipeline_rounds"

SOURCE_FAULTS = {CLAIMED: "after_claim", CHECKPOINTED: "after_commitlog"}
"""The points that are in the process of the source."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What a round needs; ``postgres``: None if no sink is in it."""

    sandbox: Sandbox
    postgres: PostgresServer | None


@dataclass(frozen=True, slots=True)
class PipelineOutcome:
    """What came of a crash.  ``continued``: how a driver ended that was stopped."""

    crash: PipelineCrash
    verdict: PipelineVerdict
    continued: str = ""

    def as_json(self) -> dict[str, Any]:
        """For ``tests/spark/crash/pipeline_table.py``."""
        verdict = self.verdict
        found = {"findings": list(verdict.findings), "lost": verdict.lost, "twice": verdict.twice}
        return {"text": str(self.crash), **asdict(self.crash), **found, "continued": self.continued}

    def __str__(self) -> str:
        again = "" if self.verdict.is_valid else f"\n    again: {AGAIN} {self.crash}"
        continued = f"; continued: {self.continued}" if self.continued else ""
        seed = "" if self.crash.seed is None else f"seed {self.crash.seed}: "
        return f"{seed}{self.crash}: {self.verdict}{continued}{again}"


class PipelinePlay:
    """One crash while it is played; topic, group and pipeline have one name."""

    def __init__(self, crash: PipelineCrash, number: int, servers: Servers, folder: Path, salt: str) -> None:
        self.crash = crash
        self.name = f"p{number}-{salt}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self._servers = servers
        self._continues_from: PipelineState | None = None
        self._continued = ""
        self._problems: list[str] = []
        sandbox = servers.sandbox
        sandbox.create_topic(self.name, len(PARTITIONS))
        for partition in PARTITIONS:
            sandbox.produce(self.name, partition, values_of(partition, crash.command))
        if crash.sink == TOPIC:
            for kind in ("rows", "dead"):
                sandbox.create_topic(f"{self.name}-{kind}", 1)
        self._first = self._write("first", NUMBER)
        self._file = self._write("last", NUMBER_OF.get(crash.command, NUMBER))

    @property
    def source_fault(self) -> str | None:
        """What the source is to stop at."""
        point = SOURCE_FAULTS.get(self.crash.point)
        return None if point is None else f"{point}:{self.crash.batch}"

    # --- the file -------------------------------------------------------------------------------------------------

    def _write(self, name: str, number: str) -> Path:
        crash, topic = self.crash, self.name
        more = {"skipOffsets": skipped_offsets(topic)}
        if crash.command == BACKFILL:
            more["startingOffsets"] = starting_offsets(topic)
        columns = ["id", f"{number} AS n", "topic", "partition", "`offset`"]
        if crash.sink == TOPIC:
            columns = [f"to_json(struct(id, {number} AS n, partition, `offset`)) AS value"]
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in more.items())
        file = self.folder / f"{name}.toml"
        file.write_text(
            f"""
            [pipeline]
            name = "{topic}"
            [source]
            zookeeper.connect = "{self._servers.sandbox.zookeeper_connect}"
            group.id = "{topic}"
            subscribe = "{topic}"
            auto.offset.reset = "smallest"
            zookeeper.session.timeout.ms = {SESSION_MS}
            maxOffsetsPerTrigger = {PER_BATCH * len(PARTITIONS)}
            {lines}
            [decode]
            format = "json"
            schema = "{SCHEMA}"
            [transform]
            select = {json.dumps(columns)}
            where = "{WHERE}"
            [sink]
            {self._target(crash.sink, "rows")}
            [dead-letters]
            {self._target(PARQUET if (crash.command, crash.sink) == (REPLAY, DELTA) else crash.sink, "dead")}
            [trigger]
            available-now = true
            [checkpoint]
            path = "checkpoint"
            """
        )
        return file

    def _target(self, sink: str, kind: str) -> str:
        """The keys of a section.  ``kind``: rows or dead."""
        if sink == TOPIC:
            brokers = self._servers.sandbox.bootstrap
            return f'format = "topic"\ntopic = "{self.name}-{kind}"\nkafka.bootstrap.servers = "{brokers}"'
        if sink != POSTGRES:
            return f'format = "{sink}"\npath = "{kind}"'
        server = self._servers.postgres
        assert server is not None, "a crash with PostgreSQL needs a server"
        tables = f'table = "{kind} {self.name}"\nbatch-table = "{kind} batches {self.name}"'
        if kind == "dead":
            return f'format = "postgres"\nconnection = "sink"\n{tables}'
        return (
            f'format = "postgres"\nurl = "postgresql://{HOST}:{server.port}/{DATABASE}"\nssl-mode = "disable"\n'
            f'user = "{USER}"\npassword = "file:{server.password_file}"\n{tables}'
        )

    # --- the phases -----------------------------------------------------------------------------------------------

    def begin(self, driver: Driver) -> None:
        """The command up to its point; before it the live query, if it is another one."""
        steps = [] if self.crash.command == RUN else [{"command": RUN, "file": str(self._first)}]
        self._say(driver, [*steps, self._step()], {"point": self.crash.point, "batch": self.crash.batch})

    def go_on(self, driver: Driver) -> None:
        """The same command again, to its end."""
        self._say(driver, [self._step()], None)

    def _step(self) -> dict[str, str]:
        return {"command": self.crash.command, "file": str(self._file)}

    def _say(self, driver: Driver, steps: list[dict[str, str]], hold: Mapping[str, Any] | None) -> None:
        driver.say({"do": "pipeline", "query": self.name, "steps": steps, "hold": hold})

    def has_met_its_point(self, driver: Driver) -> bool:
        """Whether it waits there, or has ended before, which is a finding."""
        for ended in driver.seen("ended", self.name):
            self._problems.append(f"it has ended before its point: {ended['error']}")
            return True
        return (driver.fault_folder / self.name).exists()

    def has_been_repeated(self, driver: Driver) -> bool:
        """Whether the second driver has ended the command; an error is a finding."""
        for ended in driver.seen("ended", self.name):
            if ended["error"] is not None:
                self._problems.append(f"the repeated command has failed: {ended['error']}")
            return True
        return False

    def release(self, driver: Driver) -> None:
        """It goes on at its point."""
        (driver.fault_folder / f"{self.name}.go").touch()
        (driver.fault_folder / self.name).unlink(missing_ok=True)

    def state(self) -> PipelineState:
        planned = {tp.partition: end for tp, end in last_ends(self.folder).items()}
        return read_state(self._file, self._servers.sandbox, self.name, planned)

    def before_it_continues(self) -> None:
        """Remember what the second driver has left."""
        self._continues_from = self.state()

    def has_continued(self, driver: Driver) -> bool:
        """Whether the driver that continued has ended the command, with an error or without."""
        ended = driver.seen("ended", self.name)
        if ended:
            self._continued = str(ended[-1]["error"] or "ended without an error")
        return bool(ended)

    def outcome(self) -> PipelineOutcome:
        state = self.state()
        verdict = judge(self.crash, state)
        changed = [] if self._continues_from is None else changes(self.crash, self._continues_from, state)
        verdict = replace(verdict, findings=(*self._problems, *verdict.findings, *changed))
        return PipelineOutcome(self.crash, verdict, self._continued)


def play_pipelines(
    crashes: Sequence[PipelineCrash], servers: Servers, folder: Path, salt: str | None = None
) -> list[PipelineOutcome]:
    """All crashes of a round; all with Delta, or none."""
    salt = salt or uuid.uuid4().hex[:6]
    plays = [PipelinePlay(crash, number, servers, folder, salt) for number, crash in enumerate(crashes)]
    kills, stops = ([play for play in plays if play.crash.fault == fault] for fault in (KILL, STOP))
    is_delta = crashes[0].sink == DELTA
    drivers: list[Driver] = []

    def driver(name: str, held: Sequence[PipelinePlay]) -> Driver:
        faults = {play.name: play.source_fault for play in held if play.source_fault is not None}
        waiting = sum(play.crash.point in (FETCHED, DECODED) for play in held)
        master = f"local[{TASKS_AT_A_TIME + waiting * TASKS_OF_A_BATCH},4]"
        drivers.append(_driver(folder, f"{name}-{salt}", faults, master, is_delta=is_delta))
        return drivers[-1]

    try:
        first = driver("a", kills) if kills else None
        second = driver("b", stops)
        if first is not None:
            with _timed("up to the kill"):
                first.wait_ready()
                for play in kills:
                    play.begin(first)
                _wait_at_points(kills, first)
                _go_on_for_a_moment(kills, first)
                first.kill()
        third = driver("c", ()) if stops else None
        with _timed("killed ones go on"):
            second.wait_ready()
            for play in kills:
                play.go_on(second)
            for play in stops:
                play.begin(second)
            _to_the_end(kills, second)
            _wait_at_points(stops, second)
        if third is not None:
            _stop_and_continue(stops, second, third)
        return [play.outcome() for play in plays]
    except BaseException:
        print(f"again: {AGAIN} {' '.join(map(str, crashes))}", flush=True)
        raise
    finally:
        for each in drivers:
            each.kill()


def _stop_and_continue(stops: Sequence[PipelinePlay], stopped: Driver, other: Driver) -> None:
    with _timed("stopped ones go on elsewhere"):
        _go_on_for_a_moment(stops, stopped)
        stopped.pause()
        other.wait_ready()
        for play in stops:
            play.go_on(other)
        _to_the_end(stops, other)
    with _timed("the stopped driver continues"):
        for play in stops:
            play.before_it_continues()
            if play.crash.delay_ms is None:
                play.release(stopped)
        stopped.resume()
        for play in stops:
            stopped.wait(lambda play=play: play.has_continued(stopped), PHASE_TIMEOUT_MS, f"{play.crash} continues")


def _driver(folder: Path, name: str, faults: Mapping[str, str], master: str, *, is_delta: bool) -> Driver:
    if not is_delta:
        return Driver(folder, name, faults, master=master)
    jars = {"spark.jars": ",".join(map(str, ensure_delta_jars()))}
    settings = {**delta_settings({}), **DELTA_SETTINGS, **jars}
    return Driver(folder, name, faults, master=master, settings=settings, path=[ensure_pyspark()])


def _wait_at_points(plays: Sequence[PipelinePlay], driver: Driver) -> None:
    for play in plays:
        what = f"{play.crash} meets its point"
        driver.wait(lambda play=play: play.has_met_its_point(driver), PHASE_TIMEOUT_MS, what)


def _go_on_for_a_moment(plays: Sequence[PipelinePlay], driver: Driver) -> None:
    """Those with a delay go on, so that each has passed its point by so long when all are killed."""
    waiting = sorted((play for play in plays if play.crash.delay_ms is not None), key=lambda each: -_delay_ms(each))
    delays_ms = [*map(_delay_ms, waiting), 0]
    for play, delay_ms, next_ms in zip(waiting, delays_ms, delays_ms[1:], strict=False):
        play.release(driver)
        pause_ms(delay_ms - next_ms)


def _delay_ms(play: PipelinePlay) -> int:
    return play.crash.delay_ms or 0


def _to_the_end(plays: Sequence[PipelinePlay], driver: Driver) -> None:
    for play in plays:
        what = f"{play.crash} runs to its end"
        driver.wait(lambda play=play: play.has_been_repeated(driver), PHASE_TIMEOUT_MS, what)


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began_ms = SYSTEM_CLOCK.now_ms()
    try:
        yield
    finally:
        print(f"{what}: {(SYSTEM_CLOCK.now_ms() - began_ms) / 1000:.1f} s", flush=True)


def main() -> int:
    """Play the crashes of the command line."""
    crashes = [crash_of(text) for text in sys.argv[1:]]
    with Sandbox() as sandbox, run_postgres() as postgres, tempfile.TemporaryDirectory() as folder:
        sandbox.start_zookeeper()
        sandbox.start_broker(BROKER, chroot="/kafka")
        servers = Servers(sandbox, postgres)
        outcomes = [each for part in rounds_of(crashes) for each in play_pipelines(part, servers, Path(folder))]
    print(*outcomes, sep="\n")
    return 0 if all(each.verdict.is_valid for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
