"""How Kafka's own classes lay messages out, as ``Layouts.java`` prints it, and our tables said in the same words."""

from __future__ import annotations

import subprocess
from pathlib import Path

from zkconsumer.testing.sandbox import ensure_artifact_set, java
from zkconsumer.wire import consumer_protocol, group_records
from zkconsumer.wire.field_types import ArrayFieldType, FieldType, TextFieldType
from zkconsumer.wire.schemas import APIS
from zkconsumer.wire.schemas.message_schema import NestedMessageFieldType, fields

DATA = Path(__file__).parent.parent / "data" / "wire"
RELEASES = ("3.9.1", "4.1.1")
"""3.9.1 still has the versions that left with 4.0; 4.1.1 has all the later ones."""

STORED = {
    "org.apache.kafka.common.message.": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "org.apache.kafka.coordinator.group.generated.": ("OffsetCommitValue", "GroupMetadataValue"),
}
TABLES = {
    "ConsumerProtocolSubscription": (consumer_protocol._Subscription, 3, 4),
    "ConsumerProtocolAssignment": (consumer_protocol._Assignment, 3, 4),
    "OffsetCommitValue": (group_records.OffsetCommitValue, 4, 4),
    "GroupMetadataValue": (group_records.GroupMetadataValue, 4, 4),
}
"""Name → our table, the highest version, and from which one on it is flexible."""

TIMEOUT_S = 60

_NAMES = {"bytes": "bytes", "record set": "records", "bool": "boolean"}


def printed_by_java(release: str) -> str:
    """What the classes of this release say."""
    jars = ensure_artifact_set(release)
    classes = java.compiled(("Layouts",), jars)
    stored = [package + name for package, names in STORED.items() for name in names]
    command = [java.find_jdk().java, "-cp", f"{classes}:{jars}/*", "Layouts", *map(str, sorted(APIS)), *stored]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout


def recorded_of(release: str) -> Path:
    """The file with what they said."""
    return DATA / f"layouts-{release}.txt"


def parsed(text: str) -> dict[tuple[str, str, int], str]:
    """(name, request or response or stored, version) → the layout; versions that are gone are left out."""
    found = {}
    layout = ""
    for line in text.splitlines():
        head, _, words = line.partition(": ")
        name, what, version = head.split()
        layout = layout if words == "same" else words
        if layout != "gone":
            found[name, what, int(version)] = layout
    return found


def ours(cls: type, version: int, flexible: bool) -> str:
    """Our table of a message, in the words of ``Layouts.java``."""
    return ("~ " if flexible else "") + _fields(cls, version)


def _fields(cls: type, version: int) -> str:
    present = [field for field in fields(cls) if version in field.spec.versions]
    tagged = sorted((field for field in present if field.spec.tag is not None), key=lambda field: field.spec.tag)
    words = []
    for field in [*(field for field in present if field.spec.tag is None), *tagged]:
        tag = "" if field.spec.tag is None else f"@{field.spec.tag} "
        nullable = "?" if version in field.spec.nullable else ""
        words.append(f"{field.name} {tag}{_kind(field.spec.field_type, version)}{nullable}")
    return ", ".join(words)


def _kind(kind: FieldType, version: int) -> str:
    match kind:
        case ArrayFieldType():
            return f"[{_kind(kind.item, version)}]"
        case NestedMessageFieldType():
            return "{" + _fields(kind.cls, version) + "}"
        case TextFieldType():
            return "string"
    name: str = kind.name  # type: ignore[attr-defined]  # numbers and bytes have one
    return _NAMES.get(name, name)
