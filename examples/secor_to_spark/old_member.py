"""The process of one old member (``SecorMember.java``), and what its log says."""

from __future__ import annotations

from pathlib import Path

from reconciliation import TopicAndPartition, Upload

from zkconsumer.testing.sandbox import MemberProcess, Sandbox
from zkconsumer.testing.sandbox.child_process import ChildProcess, JavaCommand, JavaProcess, write_properties
from zkconsumer.testing.sandbox.event_file import JsonEvent

HERE = Path(__file__).resolve().parent

SETTINGS = {
    "auto.offset.reset": "smallest",
    "auto.commit.enable": "false",
    "consumer.timeout.ms": "200",
    "zookeeper.session.timeout.ms": "6000",
    "rebalance.backoff.ms": "1000",
    "rebalance.max.retries": "10",
}
"""Of the consumer.  Only the program writes offsets.  ``hasNext`` returns after 200 ms, so that files are checked."""


class OldMember(MemberProcess):
    """A member of the group; nothing runs before ``start``.

    ``finishes_uploads``: on SIGTERM it first finishes the uploads that run, and then leaves the group.  Otherwise it
    leaves the group at once, and finishes the uploads after that.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        group: str,
        topic: str,
        name: str,
        *,
        threads: int,
        target: Path,
        upload_ms: int,
        file_age_ms: int,
        finishes_uploads: bool,
    ) -> None:
        super().__init__(sandbox.run, group, name)
        self._release = sandbox.brokers[0].release
        self._properties = {
            **SETTINGS,
            "group.id": group,
            "consumer.id": name,
            "zookeeper.connect": sandbox.zookeeper_connect,
            "secor.topic": topic,
            "secor.threads": str(threads),
            "secor.target": str(target),
            "secor.upload.ms": str(upload_ms),
            "secor.file.age.ms": str(file_age_ms),
            "secor.stop": "finish-uploads" if finishes_uploads else "release-partitions",
        }

    def _launch(self) -> ChildProcess:
        config = write_properties(self._properties, self.run.root / self.name / "member.properties")
        command = JavaCommand(self._release, "SecorMember", (str(config),), programs=("SecorMember",), sources=HERE)
        return JavaProcess(self.run, "member", self.name, command, reads_commands=True)

    # --- its log ------------------------------------------------------------------------------------------------

    def uploads(self) -> list[Upload]:
        """The uploads that have ended, in order."""
        began: dict[TopicAndPartition, JsonEvent] = {}
        ended: list[Upload] = []
        for event in self.events:
            if event["event"] == "upload_began":
                began[partition_of(event)] = event
            elif event["event"] == "upload_ended":
                start = began.pop(partition_of(event))
                ended.append(
                    Upload(
                        self.name, partition_of(event), event["first"], event["last"], start["t"], event["t"],
                        start["version"], event["version"],
                    )
                )  # fmt: skip
        return ended

    def uploading(self) -> set[TopicAndPartition]:
        """The partitions whose upload runs now."""
        return self._open("upload_began", {"upload_ended"})

    def holding(self) -> set[TopicAndPartition]:
        """The partitions of which it has records that are neither uploaded nor dropped."""
        return self._open("file_opened", {"upload_ended", "file_dropped"})

    def _open(self, beginning: str, ends: set[str]) -> set[TopicAndPartition]:
        found: set[TopicAndPartition] = set()
        for event in self.events:
            if event["event"] == beginning:
                found.add(partition_of(event))
            elif event["event"] in ends:
                found.discard(partition_of(event))
        return found


def partition_of(event: JsonEvent) -> TopicAndPartition:
    """The partition that an event is about."""
    return event["topic"], event["partition"]
