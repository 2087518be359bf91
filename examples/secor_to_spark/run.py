"""Secor's successor by hand-over: old members copy a topic into files, and a pipeline takes over their group.

    python examples/secor_to_spark/run.py --stop-first     each member finishes its uploads before it leaves
    python examples/secor_to_spark/run.py --live           members are interrupted in their uploads

Starts ZooKeeper, a broker, a producer that never pauses, old members on the original Scala consumer
(``SecorMember.java``), and ``zkconsumer pipeline run`` in the same group; stops the old members one by one; compares
both outputs with the log.  Exit code: 0 each record is where it must be, 1 not so, 2 wrong arguments, 3 Java, Maven or
Spark is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from old_member import HERE, OldMember
from reconciliation import Reconciliation, TopicAndPartition, Upload, place_text, reconcile

from bridge.spark.pipeline.sinks.parquet_manifest import BATCHES
from zkconsumer.errors import SandboxError, ZkConsumerError
from zkconsumer.testing.sandbox import Sandbox, missing_requirement, wait_until, zookeeper_release
from zkconsumer.testing.sandbox.child_process import ChildProcess
from zkconsumer.testing.sandbox.waiting import pause_ms

GROUP, TOPIC, SPARK = "secor", "clicks", "zz-spark"
PARTITIONS = 6
OLD_MEMBERS = 3

ZOOKEEPER_OF = {"0.8.2.2": "3.4.6", "1.1.1": "3.8"}
"""Release of the broker and of the old members -> that of ZooKeeper."""

FILE_AGE_MS = 1_000
WAIT_MS = 300_000
"""For one step; much longer than it takes, since a step of a busy machine is no error."""

END_MS = 120_000
STABLE_S = 1.0
FURTHER_MS = 3_000
"""How long records are still produced when the pipeline has all partitions."""

PROBLEMS_SHOWN_MAX = 10

CODE_RIGHT, CODE_WRONG, CODE_MISSING = 0, 1, 3
"""Exit codes; argparse ends with 2 for wrong arguments."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    is_live: bool
    kafka: str
    per_second: int
    upload_ms: int
    folder: Path | None
    result: Path | None


class Pipeline:
    """The process of ``zkconsumer pipeline run``, with the file of this folder, changed where this machine differs."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._sandbox = sandbox
        self._file = folder / "pipeline.toml"
        self._table = folder / "spark" / "rows"
        text = (HERE / "pipeline.toml").read_text("utf-8")
        self._file.write_text(text.replace("127.0.0.1:2181/kafka", sandbox.zookeeper_connect), "utf-8")
        self._process: ChildProcess | None = None

    @property
    def process(self) -> ChildProcess:
        assert self._process is not None, "it was started"
        return self._process

    def start(self) -> None:
        """Starts the command; it is a member of the group some seconds later."""
        words = [
            sys.executable, "-X", self._sandbox.run.marker, "-c", "from zkconsumer.cli import main; main()",
            "pipeline", "run", str(self._file), "--master", "local[2]", "--conf", "spark.ui.enabled=false",
        ]  # fmt: skip
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ}
        self._process = ChildProcess(
            self._sandbox.run, "member", "spark", words, has_input=False, environment=environment
        )

    def has_written(self) -> bool:
        """Whether a batch is in the table."""
        return any((self._table / BATCHES).glob("*/*.json"))

    def end(self) -> None:
        """Sends SIGTERM to the command, which finishes its batch.  ``SandboxError``: it failed, or did not end."""
        os.kill(self.process.pid, signal.SIGTERM)
        code = self.process.wait(END_MS)
        if code != 0:
            raise SandboxError(f"the pipeline ended with code {code}; {self.process.log_end()}")


class HandOver:
    """One run: servers, old members and the pipeline, until both outputs are complete."""

    def __init__(self, arguments: Arguments, sandbox: Sandbox, folder: Path) -> None:
        self._arguments = arguments
        self._sandbox = sandbox
        self._folder = folder
        self._began = time.monotonic()
        self.members: list[OldMember] = []

    def run(self) -> dict[TopicAndPartition, int]:
        """All steps; the ends of the logs."""
        kafka, is_live = self._arguments.kafka, self._arguments.is_live
        self._sandbox.start_zookeeper(ZOOKEEPER_OF[kafka])
        self._sandbox.start_broker(kafka, chroot="/kafka")
        self._sandbox.create_topic(TOPIC, PARTITIONS)
        self._sandbox.producer.start_rate(TOPIC, PARTITIONS, self._arguments.per_second)
        self._say(
            f"ZooKeeper {ZOOKEEPER_OF[kafka]} and Kafka {kafka} run; topic {TOPIC} with {PARTITIONS} partitions gets "
            f"{self._arguments.per_second} records a second until the end"
        )
        self._start_members(threads=1 if is_live else PARTITIONS // OLD_MEMBERS)
        # Before the pipeline takes its share: the old members do not upload a partition of the pipeline any more.
        wait_until(self._is_each_partition_uploaded, "each partition is uploaded once", WAIT_MS, poll_ms=50)
        pipeline = Pipeline(self._sandbox, self._folder)
        pipeline.start()
        self._wait(pipeline, lambda: any(SPARK in each for each in self._sandbox.admin.members(GROUP)), "Spark joins")
        self._wait_settled(pipeline, self.members)
        self._say(f"the pipeline is a member of the group: {self._owners_text()}")
        if is_live:
            # The first batch of a Spark that has just started takes long; later ones begin during an upload.
            self._wait(pipeline, pipeline.has_written, "the pipeline writes its first rows")
        for member in reversed(self.members):
            self._hand_over(pipeline, member)
        self._wait(pipeline, lambda: len(self._owned_by(SPARK)) == PARTITIONS, "Spark has all partitions")
        pause_ms(FURTHER_MS)
        self._sandbox.producer.stop_rate()
        ends = {tp: ranges[-1].last + 1 for tp, ranges in self._sandbox.producer.acked.items()}
        stored = {number: end for (_, number), end in ends.items()}
        self._wait(
            pipeline, lambda: self._sandbox.admin.offsets(GROUP, TOPIC) == stored, "the group's offsets are at the end"
        )
        pipeline.end()
        self._say(f"all {sum(ends.values())} records are read: the group's offsets are the ends of the logs")
        return ends

    def _start_members(self, threads: int) -> None:
        for number in range(1, OLD_MEMBERS + 1):
            member = OldMember(
                self._sandbox, GROUP, TOPIC, f"secor-{number}", threads=threads, target=self._folder / "secor",
                upload_ms=self._arguments.upload_ms, file_age_ms=FILE_AGE_MS,
                finishes_uploads=not self._arguments.is_live,
            )  # fmt: skip
            self.members.append(member)
            member.start(wait=False)
        for member in self.members:
            member.wait_started()
        self._say(
            f"{OLD_MEMBERS} old members run with {threads} thread{'s' if threads > 1 else ''} each; an upload takes "
            f"{self._arguments.upload_ms / 1000:g} s"
        )

    def _hand_over(self, pipeline: Pipeline, member: OldMember) -> None:
        """The member is stopped during an upload, and the pipeline acquires its partitions."""
        # In a live hand-over the upload has just begun, so that Spark has time to claim before its end.
        begun = len(member.uploads()) + len(member.uploading()) if self._arguments.is_live else 0
        self._wait(
            pipeline,
            lambda: member.uploading() and len(member.uploads()) + len(member.uploading()) > begun,
            f"{member.name} begins an upload",
        )
        during = ", ".join(f"{topic}/{number}" for topic, number in sorted(member.uploading()))
        member.terminate()
        left = [each for each in self.members if each.is_running() and each is not member]
        self._wait(pipeline, lambda: not member.is_running(), f"{member.name} ends")
        self._wait_settled(pipeline, left)
        how = "left the group during" if self._arguments.is_live else "left the group after"
        self._say(f"{member.name} {how} its upload of {during}: {self._owners_text()}")

    # --- the group ----------------------------------------------------------------------------------------------

    def _is_each_partition_uploaded(self) -> bool:
        return len({each.partition for member in self.members for each in member.uploads()}) == PARTITIONS

    def _wait_settled(self, pipeline: Pipeline, members: list[OldMember]) -> None:
        """Waits until the group is settled, and its owners have not changed for ``STABLE_S``: old members begin their
        rebalance some time after a member has joined."""
        seen: dict[int, str] = {}
        since = time.monotonic()

        def is_stable() -> bool:
            nonlocal seen, since
            owners = self._owners()
            if owners != seen or not self._is_settled(members):
                seen, since = owners, time.monotonic()
            return time.monotonic() - since >= STABLE_S

        self._wait(pipeline, is_stable, f"the group is stable with {', '.join(each.name for each in members) or SPARK}")

    def _is_settled(self, members: list[OldMember]) -> bool:
        """Whether each partition has an owner that is a member now, and no old member has records of a partition that
        it does not own.  Before that the next step would mix with this one."""
        owners = self._owners()
        if len(owners) < PARTITIONS or set(owners.values()) > {SPARK, *(each.name for each in members)}:
            return False
        return all(member.holding() <= self._owned_by(member.name) for member in members)

    def _owners(self) -> dict[int, str]:
        """Partition -> the name of its owner."""
        found = self._sandbox.admin.owners(GROUP, TOPIC)
        return {number: thread.rpartition("-")[0].removeprefix(f"{GROUP}_") for number, thread in found.items()}

    def _owned_by(self, name: str) -> set[TopicAndPartition]:
        return {(TOPIC, number) for number, owner in self._owners().items() if owner == name}

    def _owners_text(self) -> str:
        owners = self._owners()
        texts = []
        for name in (*(each.name for each in self.members), SPARK):
            numbers = [str(number) for number in sorted(owners) if owners[number] == name]
            if numbers or name == SPARK:
                texts.append(f"{name} has {', '.join(numbers) or 'nothing'}")
        return "; ".join(texts)

    def _wait(self, pipeline: Pipeline, condition: Callable[[], object], what: str) -> None:
        def check() -> bool:
            if condition():
                return True
            pipeline.process.check_running()
            return False

        try:
            wait_until(check, what, WAIT_MS, poll_ms=50)
        except SandboxError as error:
            raise SandboxError(f"{error}; {pipeline.process.log_end()}") from error

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}", flush=True)


# --- the outputs ------------------------------------------------------------------------------------------------------


def read_old_output(folder: Path) -> dict[TopicAndPartition, Counter[int]]:
    """Partition -> offset -> how often it is in a complete file of the old members: one that was renamed."""
    found: dict[TopicAndPartition, Counter[int]] = {}
    for file in sorted(folder.glob("*/*/*.tsv")):
        offsets = (int(line.partition("\t")[0]) for line in file.read_text("utf-8").splitlines())
        found.setdefault((file.parent.parent.name, int(file.parent.name)), Counter()).update(offsets)
    return found


def read_spark_output(folder: Path) -> dict[TopicAndPartition, Counter[int]]:
    """The same of the table of the pipeline: the files that its manifests name, as every reader must read it."""
    import pyarrow.parquet as pq

    from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
    from bridge.spark.pipeline.sinks.parquet_table import committed_files

    found: dict[TopicAndPartition, Counter[int]] = {}
    for uri in committed_files(LocalFolderStore(str(folder))):
        table = pq.ParquetFile(uri.removeprefix("file://")).read(columns=["topic", "partition", "offset"])
        for topic, partition, offset in zip(*(column.to_pylist() for column in table.columns), strict=True):
            found.setdefault((topic, partition), Counter())[offset] += 1
    return found


def print_result(found: Reconciliation, is_right: bool) -> None:
    """The table, and each range that is in both outputs."""
    rows = [
        ("produced", found.produced),
        ("in files of the old members", found.old),
        ("in Parquet of Spark", found.spark),
        ("in both", found.double),
        ("lost", found.lost),
        ("twice in one output, or unknown", found.repeated + found.unknown),
    ]
    print()
    for name, count in rows:
        print(f"{name:<33}{count:>8}")
    if found.doubles:
        print("\nin both, with the upload of the old member:")
    for each in found.doubles:
        place = place_text(each.partition, each.first, each.last)
        print(f"  {place:<32}{upload_text(each.upload, each.writes_by_spark)}")
    if found.problems:
        print("\nwrong:", *found.problems[:PROBLEMS_SHOWN_MAX], sep="\n  ")
        if left := found.problems[PROBLEMS_SHOWN_MAX:]:
            print(f"  and {len(left)} more ranges")
    print(f"\n{'RIGHT' if is_right else 'WRONG'}: {verdict_text(found, is_right)}")


def upload_text(upload: Upload | None, writes: int) -> str:
    """Why these records are in both outputs."""
    if upload is None:
        return "NO UPLOAD explains this"
    return (
        f"{upload.member} uploaded {upload.first} to {upload.last}, {_clock(upload.began_ms)} to "
        f"{_clock(upload.ended_ms)}; claims of Spark meanwhile: {writes}"
    )


def verdict_text(found: Reconciliation, is_right: bool) -> str:
    """The last line."""
    if not is_right:
        return "a record is lost, or is in the outputs more often than the hand-over permits"
    if not found.double:
        return "each record is in exactly one output"
    return "no record is lost, and only records that an old member was uploading are in both outputs"


def result_json(arguments: Arguments, found: Reconciliation, is_right: bool) -> dict[str, Any]:
    """The result for programs."""
    return {
        "mode": "live" if arguments.is_live else "stop-first",
        "kafka": arguments.kafka,
        "right": is_right,
        "produced": found.produced,
        "old": found.old,
        "spark": found.spark,
        "double": found.double,
        "unexplained": found.unexplained,
        "lost": found.lost,
        "repeated": found.repeated,
        "unknown": found.unknown,
        "doubles": [
            {"topic": each.partition[0], "partition": each.partition[1], "first": each.first, "last": each.last}
            | ({} if each.upload is None else _upload_json(each.upload, each.writes_by_spark))
            for each in found.doubles
        ],
    }


def _upload_json(upload: Upload, writes: int) -> dict[str, Any]:
    return {
        "member": upload.member,
        "upload": [upload.first, upload.last],
        "upload_ms": [upload.began_ms, upload.ended_ms],
        "znode_versions": [upload.version_read, upload.version_written],
        "writes_by_spark": writes,
    }


def _clock(wall_ms: int) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(wall_ms // 1000))}.{wall_ms % 1000 // 100}"


# --- the command ------------------------------------------------------------------------------------------------------


def parse_arguments() -> Arguments:
    """Ends the program with code 2 for wrong ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--stop-first", action="store_true", help="members finish their uploads before they leave")
    mode.add_argument("--live", action="store_true", help="members leave during their uploads")
    parser.add_argument("--kafka", choices=sorted(ZOOKEEPER_OF), default="1.1.1", help="release of broker and members")
    parser.add_argument("--per-second", type=int, default=120, metavar="N", help="records a second (120)")
    parser.add_argument("--upload-seconds", type=float, default=5, metavar="S", help="how long an upload takes (5)")
    parser.add_argument(
        "--folder", type=Path, help="a new folder for both outputs and all logs; without it they are removed"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result for programs")
    given = parser.parse_args()
    if given.per_second < PARTITIONS or given.upload_seconds <= 0:
        parser.error(f"--per-second is at least {PARTITIONS}, and --upload-seconds more than 0")
    if given.folder is not None and given.folder.exists():
        parser.error(f"--folder {given.folder}: it exists; name a new one")
    return Arguments(
        given.live, given.kafka, given.per_second, int(given.upload_seconds * 1000), given.folder, given.json
    )


def missing() -> str | None:
    """What must be installed first, as a sentence, or None."""
    from importlib.util import find_spec

    for module in ("pyspark", "pyarrow"):
        if find_spec(module) is None:
            return f"{module} is not installed: pip install '.[spark]' in the clone"
    return None


@contextmanager
def output_folder(wanted: Path | None) -> Iterator[Path]:
    """The folder of both outputs and of the servers."""
    if wanted is not None:
        wanted.mkdir(parents=True)
        yield wanted.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="secor-to-spark-") as name:
        yield Path(name)


def main() -> int:
    """The exit code."""
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that all processes are ended
    reason = missing() or missing_requirement(arguments.kafka, zookeeper_release(ZOOKEEPER_OF[arguments.kafka]))
    if reason is not None:
        print(reason, file=sys.stderr)
        return CODE_MISSING
    try:
        with output_folder(arguments.folder) as folder, Sandbox(folder / "servers") as sandbox:
            hand_over = HandOver(arguments, sandbox, folder)
            ends = hand_over.run()
            uploads = [upload for member in hand_over.members for upload in member.uploads()]
            found = reconcile(
                ends, read_old_output(folder / "secor"), read_spark_output(folder / "spark" / "rows"), uploads
            )
    except ZkConsumerError as error:
        print(error, file=sys.stderr)
        return CODE_WRONG
    is_right = found.is_right(permits_doubles=arguments.is_live)
    print_result(found, is_right)
    if arguments.result is not None:
        arguments.result.write_text(json.dumps(result_json(arguments, found, is_right), indent=1) + "\n", "utf-8")
    return CODE_RIGHT if is_right else CODE_WRONG


if __name__ == "__main__":
    sys.exit(main())
