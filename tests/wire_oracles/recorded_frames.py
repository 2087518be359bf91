"""Frames as they were recorded: one a line, in hexadecimal, and what becomes of them in our codec.

-> JoinGroup 9 000b0009…       a request
<- JoinGroup 9 000000070000…   the answer to one
== 0002… 0003…                 a record of __consumer_offsets: key and value, "-" for a tombstone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkconsumer.wire.request_frames import (
    SIZE_BYTES,
    UNSUPPORTED_VERSION,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from zkconsumer.wire.schemas import API_VERSIONS, APIS, Api

DATA = Path(__file__).parent.parent / "data" / "wire" / "recorded"

KEPT_OF_A_KIND = 3
"""Frames kept of each API, version and direction: those that differ most in length tell most."""

FRAME_BYTES_KEPT_MAX = 4_000
RECORDS_KEPT_OF_A_KIND = 4

BY_NAME: dict[str, Api[Any, Any]] = {api.name: api for api in APIS.values()}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame without its size; ``version`` is that of the request, of an answer too."""

    is_request: bool
    api: Api[Any, Any]
    version: int
    data: bytes

    @property
    def kind(self) -> tuple[str, str, int]:
        """What a frame is an example of."""
        return ("->" if self.is_request else "<-", self.api.name, self.version)

    def body(self) -> Any:
        """Decoded by us."""
        if self.is_request:
            return decode_request(self.data).body
        return decode_response(self.api, self.version, self.data)[1]

    def written_again(self) -> bytes:
        """Decoded and encoded by us: what must be ``data`` again."""
        if self.is_request:
            request = decode_request(self.data)
            header = request.header
            frame = encode_request(self.api, self.version, header.correlation_id, header.client_id, request.body)
        else:
            correlation_id, body = decode_response(self.api, self.version, self.data)
            is_refusal = self.api is API_VERSIONS and body.error_code == UNSUPPORTED_VERSION
            frame = encode_response(self.api, 0 if is_refusal else self.version, correlation_id, body)
        return frame[SIZE_BYTES:]


@dataclass(frozen=True, slots=True)
class OffsetsRecord:
    """A record of ``__consumer_offsets`` as a broker wrote it."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one client and one broker said, and what the broker then had stored."""

    frames: list[Frame]
    records: list[OffsetsRecord]

    @property
    def kinds(self) -> set[tuple[str, str, int]]:
        return {frame.kind for frame in self.frames}

    @property
    def record_kinds(self) -> set[tuple[int, int | None]]:
        """Versions of key and value, None for a tombstone."""
        return {_record_kind(record) for record in self.records}


def examples(recorded: Recorded) -> Recorded:
    """A few of each kind: what is worth keeping."""
    kept: list[Frame] = []
    by_kind: dict[tuple[str, str, int], dict[int, Frame]] = {}
    for frame in recorded.frames:
        if len(frame.data) <= FRAME_BYTES_KEPT_MAX:
            by_kind.setdefault(frame.kind, {}).setdefault(len(frame.data), frame)
    for frames in by_kind.values():
        lengths = sorted(frames)
        chosen = {lengths[0], lengths[len(lengths) // 2], lengths[-1]}
        kept += [frames[length] for length in sorted(chosen)][:KEPT_OF_A_KIND]
    kept.sort(key=lambda frame: (frame.api.key, frame.version, not frame.is_request))
    counts: Counter[tuple[int, int | None, bool]] = Counter()
    records = []
    for record in recorded.records:
        key_version, value_version = _record_kind(record)
        is_long = record.value is not None and len(record.value) > 100
        counts[key_version, value_version, is_long] += 1
        if counts[key_version, value_version, is_long] <= RECORDS_KEPT_OF_A_KIND:
            records.append(record)
    return Recorded(kept, records)


def write(path: Path, recorded: Recorded, title: str) -> None:
    """The file of a recording."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# {title}\n"]
    lines += [f"{' '.join(map(str, frame.kind))} {frame.data.hex()}\n" for frame in recorded.frames]
    lines += [f"== {r.key.hex()} {'-' if r.value is None else r.value.hex()}\n" for r in recorded.records]
    path.write_text("".join(lines))


def read(path: Path) -> Recorded:
    """What ``write`` wrote."""
    frames, records = [], []
    for line in path.read_text().splitlines():
        match line.split():
            case ["#", *_]:
                pass
            case ["==", key, value]:
                records.append(OffsetsRecord(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)))
            case [arrow, name, version, data]:
                frames.append(Frame(arrow == "->", BY_NAME[name], int(version), bytes.fromhex(data)))
            case words:
                raise AssertionError(f"{path.name}: not a recorded line: {words}")
    return Recorded(frames, records)


def files() -> Iterable[Path]:
    """All recordings that there are."""
    return sorted(DATA.glob("*.txt"))


def _record_kind(record: OffsetsRecord) -> tuple[int, int | None]:
    value_version = None if record.value is None else int.from_bytes(record.value[:2], "big")
    return int.from_bytes(record.key[:2], "big"), value_version
