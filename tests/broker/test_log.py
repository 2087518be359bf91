"""The log of one partition: what it takes, what it gives back, and what a crash leaves of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker.log.leader_epochs import EpochEnd
from bridge.broker.log.log_validator import (
    ProduceRejected,
    RecordValidationRules,
    ValidatedRecords,
    down_convert,
    is_one_batch,
    validate_records,
)
from bridge.broker.log.partition_log import LogAppendInfo, LogSettings, PartitionLog, TimestampOffset
from bridge.broker.log.recovery import recover
from bridge.broker.log.segment_files import DiskFile, MemoryFile, OpenFiles, SyncPolicy
from bridge.broker.log.storage import DiskStorage, MemoryStorage
from zkconsumer.errors import PreconditionFailed
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import iter_records

RULES = RecordValidationRules(2, 1_000_000)
SETTINGS = LogSettings(RULES, segment_bytes=1_000_000)
WALL_MS = 1_700_000_000_000


def quiet(words: str) -> None:
    """Nobody listens."""


def records(*values: bytes, first: int = 0, time_ms: int = 1_000) -> list[Record]:
    return [Record(first + at, time_ms + at, 0, None, value) for at, value in enumerate(values)]


def sent(data: bytes, version: int = 9, rules: RecordValidationRules = RULES) -> ValidatedRecords:
    checked = validate_records(data, version, rules)
    assert isinstance(checked, ValidatedRecords), checked
    return checked


def batch(*values: bytes, producer: tuple[int, int, int] | None = None, attributes: int = 0, codec: int = 0) -> bytes:
    """A batch as a producer sends it, with a producer's id, epoch and sequence, and attributes of its own."""
    data = bytearray(build_record_set(records(*values), 2, codec))
    if producer is not None:
        struct.pack_into(">qhi", data, 43, *producer)
    data[22] |= attributes
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return bytes(data)


def memory_log(settings_: LogSettings = SETTINGS) -> PartitionLog:
    return PartitionLog("t-0", MemoryStorage(), settings_, quiet)


def disk_log(folder: Path, told: Callable[[str], None] = quiet, settings_: LogSettings = SETTINGS) -> PartitionLog:
    return PartitionLog("t-0", DiskStorage(folder, OpenFiles(SyncPolicy.SYSTEM)), settings_, told)


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in log.records()]


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP, compression.SNAPPY, compression.LZ4])
def test_what_was_sent_comes_back_with_the_next_offsets(magic: int, codec: int) -> None:
    log = memory_log(replace(SETTINGS, validation_rules=replace(RULES, magic=magic)))
    rules = log.settings.validation_rules
    version = {0: 1, 1: 2, 2: 9}[magic]
    for values_ in ([b"a", b"b"], [b"c"], [b"d", b"e", b"f"]):
        log.append_validated(sent(build_record_set(records(*values_), magic, codec), version, rules), 0, WALL_MS)
    assert values(log) == list(enumerate([b"a", b"b", b"c", b"d", b"e", b"f"]))
    assert log.end == 6
    assert [entry.magic for entry in iter_entries(log.read(0, 10_000))] == [magic] * len(
        list(iter_entries(log.read(0, 10_000)))
    )


@pytest.mark.parametrize("codec", [compression.NONE, compression.GZIP])
def test_producers_that_number_every_message_0_are_understood(codec: int) -> None:
    """Java's producer of 0.9 does so, inside of wrappers too."""
    inner = b"".join(build_record_set(records(value), 0) for value in (b"a", b"b", b"c"))
    if codec:
        wrapper = bytearray(build_record_set([Record(0, -1, -1, None, compression.compress(codec, inner, 0))], 0))
        wrapper[17] |= codec
        import zlib

        struct.pack_into(">I", wrapper, 12, zlib.crc32(bytes(wrapper[16:])))
        inner = bytes(wrapper)
    log = memory_log(replace(SETTINGS, validation_rules=replace(RULES, magic=0)))
    log.append_validated(sent(inner, 1, log.settings.validation_rules), 0, WALL_MS)
    log.append_validated(sent(inner, 1, log.settings.validation_rules), 0, WALL_MS)
    assert values(log) == list(enumerate([b"a", b"b", b"c"] * 2))


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_stored_in_the_log_s_own(magic: int) -> None:
    log = memory_log()
    data = build_record_set(records(b"a", b"b"), magic, compression.GZIP)
    log.append_validated(sent(data, 2), 7, WALL_MS)
    [entry] = iter_entries(log.read(0, 10_000))
    assert entry.magic == 2
    assert values(log) == [(0, b"a"), (1, b"b")]


def test_readers_of_old_formats_get_what_they_can_read() -> None:
    log = memory_log()
    log.append_validated(sent(batch(b"a", b"b", codec=compression.GZIP)), 0, WALL_MS)
    stored = log.read(0, 10_000)
    for magic in (0, 1):
        old = down_convert(stored, magic, keeps_size=False)
        assert {entry.magic for entry in iter_entries(old)} == {magic}
        assert [(record.offset, record.value) for record in iter_records(old)] == [(0, b"a"), (1, b"b")]
    assert down_convert(stored, 2, keeps_size=False) == stored
    assert down_convert(stored[:20], 0, keeps_size=False) == stored[:20], "an entry that is cut off stays so"


# --- what is refused ----------------------------------------------------------------------------------------------

OLD = RecordValidationRules(0, 1_000_000)


@pytest.mark.parametrize(
    ("data", "version", "rules", "code"),
    [
        (b"", 9, RULES, INVALID_RECORD),
        (b"\0" * 100, 9, RULES, CORRUPT_MESSAGE),
        (batch(b"a")[:-1], 9, RULES, INVALID_RECORD),
        (batch(b"a")[:-1] + b"!", 9, RULES, CORRUPT_MESSAGE),
        (batch(b"a") + batch(b"b"), 9, RULES, INVALID_RECORD),
        (batch(b"a") + batch(b"b"), 9, replace(RULES, knows_invalid_record=False), CORRUPT_MESSAGE),
        (build_record_set(records(b"a"), 1), 3, RULES, INVALID_RECORD),
        (build_record_set(records(b"a"), 1), 2, OLD, UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (batch(b"a"), 1, OLD, CORRUPT_MESSAGE),
        (batch(b"a", codec=compression.ZSTD), 6, RULES, UNSUPPORTED_COMPRESSION_TYPE),
        (batch(b"a", attributes=0x10), 9, RULES, INVALID_TXN_STATE),
        (batch(b"a", attributes=0x20), 9, RULES, INVALID_RECORD),
        (batch(b"a"), 9, replace(RULES, is_compacted=True), INVALID_RECORD),
        (batch(b"a" * 100), 9, replace(RULES, message_bytes_max=100), MESSAGE_TOO_LARGE),
        (batch(b"a", producer=(1, 0, -1)), 9, RULES, INVALID_RECORD),
        (build_record_set([], 2, base_offset=0), 9, RULES, INVALID_RECORD),
        (build_record_set([Record(0, 1, 0, None, b"a"), Record(2, 1, 0, None, b"b")], 2), 9, RULES, INVALID_RECORD),
    ],
)
def test_nothing_is_stored_of_what_cannot_be_right(
    data: bytes, version: int, rules: RecordValidationRules, code: object
) -> None:
    refused = validate_records(data, version, rules)
    assert isinstance(refused, ProduceRejected)
    assert refused.code == code, refused.message


@given(st.binary(max_size=200), st.integers(0, 13))
def test_any_bytes_are_taken_or_refused(data: bytes, version: int) -> None:
    assert isinstance(validate_records(data, version, RULES), ValidatedRecords | ProduceRejected)
    assert is_one_batch(data) in (False, True)


def test_what_looks_like_one_batch() -> None:
    good = batch(b"a")
    assert is_one_batch(good)
    for data in (b"", good[:20], good[:-1], good + good, struct.pack(">qi", 0, 2) + b"ab"):
        assert not is_one_batch(data)
    assert not is_one_batch(build_record_set(records(b"a"), 1))


@given(st.data())
def test_a_batch_with_a_changed_byte_is_refused_or_the_same(data: st.DataObject) -> None:
    good = batch(b"some", b"values", codec=data.draw(st.sampled_from([0, compression.GZIP])))
    at = data.draw(st.integers(16, len(good) - 1))
    changed = bytearray(good)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    assert isinstance(validate_records(bytes(changed), 9, RULES), ProduceRejected)


def test_before_version_3_what_is_cut_off_is_passed_over_and_nothing_may_be_sent() -> None:
    log = memory_log(replace(SETTINGS, validation_rules=replace(RULES, magic=0)))
    one, two = (build_record_set(records(value), 0) for value in (b"a", b"b"))
    assert log.append_validated(sent(b"", 1, log.settings.validation_rules), 0, WALL_MS) == LogAppendInfo(-1, -1)
    assert log.append_validated(sent(one[:-1], 1, log.settings.validation_rules), 0, WALL_MS) == LogAppendInfo(-1, -1)
    assert log.append_validated(sent(one + two[:-1], 1, log.settings.validation_rules), 0, WALL_MS) == LogAppendInfo(
        0, 0
    )
    assert values(log) == [(0, b"a")]


# --- idempotent producers -----------------------------------------------------------------------------------------


def produce(
    log: PartitionLog, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7
) -> LogAppendInfo | ProduceRejected:
    return log.append_validated(sent(batch(*[b"v"] * count, producer=(producer, epoch, sequence))), 0, WALL_MS)


def test_a_batch_that_comes_again_is_answered_as_before_and_not_stored_again() -> None:
    log = memory_log()
    firsts = [produce(log, sequence) for sequence in range(5)]
    again = [produce(log, sequence) for sequence in range(5)]
    assert [(s.first_offset, s.is_duplicate) for s in again if isinstance(s, LogAppendInfo)] == [
        (n, True) for n in range(5)
    ]
    assert [s.first_offset for s in firsts if isinstance(s, LogAppendInfo)] == list(range(5))
    assert log.end == 5


def test_a_batch_from_long_ago_is_out_of_order() -> None:
    log = memory_log()
    for sequence in range(6):
        produce(log, sequence)
    refused = produce(log, 0)
    assert isinstance(refused, ProduceRejected)
    assert refused.code == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_who_is_not_known_may_begin_anywhere_or_only_with_0_by_release() -> None:
    log = memory_log(replace(SETTINGS, unknown_producer_error=UNKNOWN_PRODUCER_ID))
    refused = produce(log, 5)
    assert isinstance(refused, ProduceRejected)
    assert refused.code == UNKNOWN_PRODUCER_ID
    assert isinstance(produce(log, 0), LogAppendInfo)


def test_gaps_and_old_epochs_are_refused_and_a_new_epoch_begins_with_0() -> None:
    log = memory_log()
    assert isinstance(produce(log, 5), LogAppendInfo), "who is not known may begin anywhere"
    gap = produce(log, 7)
    assert isinstance(gap, ProduceRejected)
    assert gap.code == OUT_OF_ORDER_SEQUENCE_NUMBER
    late = produce(log, 1, epoch=1)
    assert isinstance(late, ProduceRejected)
    assert late.code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(produce(log, 0, epoch=1), LogAppendInfo)
    fenced = produce(log, 6, epoch=0)
    assert isinstance(fenced, ProduceRejected)
    assert fenced.code == INVALID_PRODUCER_EPOCH
    assert log.end == 2


def test_after_the_last_sequence_number_comes_0() -> None:
    log = memory_log()
    produce(log, 2**31 - 2, 2)
    assert isinstance(produce(log, 0), LogAppendInfo)


def test_a_log_that_is_opened_again_knows_its_producers(tmp_path: Path) -> None:
    log = disk_log(tmp_path)
    produce(log, 0)
    produce(log, 1)
    reopened = disk_log(tmp_path)
    again = produce(reopened, 1)
    assert again == LogAppendInfo(1, 1, is_duplicate=True)
    gap = produce(reopened, 3)
    assert isinstance(gap, ProduceRejected)


# --- reading ------------------------------------------------------------------------------------------------------


def test_a_read_begins_with_the_entry_that_holds_the_offset_and_keeps_the_limit() -> None:
    log = memory_log()
    for at in range(5):
        log.append_validated(sent(batch(b"%d" % at, b"x" * 50)), 0, WALL_MS)
    size = len(log.read(0, 1, min_one_message=True))
    assert [e.offset for e in iter_entries(log.read(3, 2 * size))] == [2, 4]
    assert [e.offset for e in iter_entries(log.read(2, 2 * size - 1))] == [2]
    assert log.read(2, size - 1) == b""
    assert [e.offset for e in iter_entries(log.read(2, size - 1, min_one_message=True))] == [2]
    assert len(log.read(2, size - 1, may_truncate=True)) == size - 1
    assert log.read(10, 1000) == b""


def test_a_log_of_many_segments_reads_as_one(tmp_path: Path) -> None:
    small = replace(SETTINGS, segment_bytes=200)
    log = disk_log(tmp_path, settings_=small)
    for at in range(20):
        log.append_validated(sent(batch(b"%d" % at)), at // 10, WALL_MS)
    expected = [(at, b"%d" % at) for at in range(20)]
    assert len(list(tmp_path.iterdir())) > 5
    assert values(log) == expected
    reopened = disk_log(tmp_path, settings_=small)
    assert values(reopened) == expected
    assert (reopened.start, reopened.end) == (0, 20)
    assert reopened.end_offset_for_epoch(0, 1) == EpochEnd(0, 10)
    assert reopened.end_offset_for_epoch(1, 1) == EpochEnd(1, 20)
    assert reopened.end_offset_for_epoch(2, 1) == EpochEnd(-1, -1)


def test_a_segment_that_is_missing_in_the_middle_is_damage_and_no_gap_that_readers_jump_over(tmp_path: Path) -> None:
    """A power cut, or a hand, can take a file away whose records were acknowledged."""
    small = replace(SETTINGS, segment_bytes=200)
    log = disk_log(tmp_path, settings_=small)
    for at in range(20):
        log.append_validated(sent(batch(b"%d" % at)), 0, WALL_MS)
    first, second, third, *_ = sorted(tmp_path.iterdir())
    whole = second.read_bytes()
    second.unlink()
    with pytest.raises(PreconditionFailed, match=f"segment {int(third.stem)}: the one before it ends at"):
        disk_log(tmp_path, settings_=small)
    second.write_bytes(b"")
    with pytest.raises(PreconditionFailed, match="records in between are missing"):
        disk_log(tmp_path, settings_=small)
    second.write_bytes(whole)
    first.unlink()
    assert disk_log(tmp_path, settings_=small).start == int(second.stem), "what is deleted at the beginning is no gap"


def test_the_oldest_segments_go_when_more_is_there_than_is_kept(tmp_path: Path) -> None:
    log = disk_log(tmp_path, settings_=replace(SETTINGS, segment_bytes=200, retention_bytes=500))
    for at in range(50):
        log.append_validated(sent(batch(b"%d" % at)), 0, WALL_MS)
    assert 0 < log.start < log.end == 50
    assert 500 <= log.size <= 900
    assert [offset for offset, _ in values(log)] == list(range(log.start, 50))
    assert not log.can_read_from(log.start - 1)
    assert disk_log(tmp_path).start == log.start


def test_times_lead_to_the_first_record_at_or_after_them() -> None:
    log = memory_log()
    for time_ms in (100, 300, 200):
        log.append_records(records(b"a", b"b", time_ms=time_ms), 0, WALL_MS)
    assert log.first_at_or_after(0) == TimestampOffset(100, 0)
    assert log.first_at_or_after(101) == TimestampOffset(101, 1)
    assert log.first_at_or_after(200) == TimestampOffset(300, 2)
    assert log.first_at_or_after(302) is None
    assert log.max_timestamp() == TimestampOffset(301, 3)
    assert log.segment_starts(WALL_MS - 1, False, WALL_MS) == []
    assert log.segment_starts(WALL_MS, False, WALL_MS) == [6, 0]
    assert memory_log().max_timestamp() is None


# --- crashes ------------------------------------------------------------------------------------------------------


def written(folder: Path, count: int = 4) -> tuple[Path, list[int]]:
    """A log of so many batches: its file, and where each batch ends."""
    log = disk_log(folder)
    ends = []
    for at in range(count):
        log.append_validated(sent(batch(b"value %d" % at, b"more", producer=(1, 0, 2 * at))), 0, WALL_MS)
        ends.append(log.size)
    [file] = folder.iterdir()
    return file, ends


def test_a_tail_torn_at_any_byte_is_cut_and_everything_before_it_is_there(tmp_path: Path) -> None:
    file, ends = written(tmp_path)
    whole = file.read_bytes()
    for size in range(ends[-2], ends[-1]):
        file.write_bytes(whole[:size])
        told: list[str] = []
        log = disk_log(tmp_path, told.append)
        assert log.end == 6
        assert file.stat().st_size == ends[-2]
        assert len(told) == (size > ends[-2])
        stored = log.append_validated(sent(batch(b"value 3", b"more", producer=(1, 0, 6))), 0, WALL_MS)
        assert stored == LogAppendInfo(6, 7)
        assert file.read_bytes() == whole


def test_any_flipped_bit_in_the_last_batch_cuts_that_batch_and_nothing_else(tmp_path: Path) -> None:
    file, ends = written(tmp_path)
    whole = file.read_bytes()
    offset, leader_epoch = range(ends[-2], ends[-2] + 8), range(ends[-2] + 12, ends[-2] + 16)
    for at in set(range(ends[-2], ends[-1])) - {*leader_epoch}:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        recovered = recover(bytes(damaged), 0)
        assert recovered.valid_bytes == ends[-2], at
        assert recovered.is_torn == (at not in offset), "what is sound but for its offset was written as a whole"


def test_any_flipped_bit_before_the_last_batch_is_damage_that_is_not_cut(tmp_path: Path) -> None:
    file, ends = written(tmp_path)
    whole = file.read_bytes()
    begin, end = ends[0], ends[1]
    leader_epoch = range(begin + 12, begin + 16)
    for at in set(range(begin, end)) - {*leader_epoch}:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        recovered = recover(bytes(damaged), 0)
        assert (recovered.valid_bytes, recovered.is_torn) == (begin, False), at
    file.write_bytes(bytes(damaged))
    with pytest.raises(PreconditionFailed, match=f"segment 0, byte {begin}: .*restore the file"):
        disk_log(tmp_path)
    assert file.read_bytes() == bytes(damaged), "nothing was changed"


def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    """What some file systems leave of a write that a power cut interrupted."""
    file, ends = written(tmp_path)
    with file.open("ab") as more:
        more.write(bytes(5_000))
    told: list[str] = []
    assert disk_log(tmp_path, told.append).end == 8
    [words] = told
    assert words.startswith(f"t-0, segment 0, byte {ends[-1]}: ")
    assert words.endswith("5000 bytes are cut off")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_answers_as_if_never_killed_for_all_that_is_whole(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    kept = MemoryFile()
    log = PartitionLog("t-0", _One(kept), SETTINGS, quiet)
    ends = [(0, 0)]
    for at, size in enumerate(sizes):
        log.append_validated(sent(batch(*[b"%d" % at] * size, producer=(1, 0, log.end))), 0, WALL_MS)
        ends.append((kept.size, log.end))
    expected = values(log)
    cut = data.draw(st.integers(0, kept.size))
    kept.truncate(cut)
    whole_bytes, whole_end = max(end for end in ends if end[0] <= cut)
    reopened = PartitionLog("t-0", _One(kept), SETTINGS, quiet)
    assert (kept.size, reopened.end) == (whole_bytes, whole_end)
    assert values(reopened) == expected[:whole_end]
    next_one = reopened.append_validated(sent(batch(b"next", producer=(1, 0, whole_end))), 0, WALL_MS)
    assert next_one == LogAppendInfo(whole_end, whole_end), "the producer's numbers go on where the log ends"


class _One:
    """A storage of one segment that survives the log."""

    def __init__(self, file: MemoryFile) -> None:
        self._file = file

    def segments(self) -> list[tuple[int, MemoryFile]]:
        return [(0, self._file)] if self._file.size else []

    def create(self, base_offset: int) -> MemoryFile:
        return self._file


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    file = DiskFile(tmp_path / "f.log", OpenFiles(SyncPolicy.EVERY_APPEND))
    file.append(b"sound")
    pwrite = os.pwrite

    def full(descriptor: int, data: memoryview, position: int) -> int:
        if position > 5:
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data[:3], position)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        file.append(b"half of this")
    monkeypatch.undo()
    assert (tmp_path / "f.log").read_bytes() == b"sound"
    file.append(b" again")
    assert file.read(0, 100) == b"sound again"


def test_no_more_files_are_open_than_allowed(tmp_path: Path) -> None:
    from bridge.broker.log.segment_files import OPEN_FILES_MAX

    files = OpenFiles(SyncPolicy.SYSTEM)
    made = [DiskFile(tmp_path / f"{at}.log", files) for at in range(OPEN_FILES_MAX + 5)]
    for at, file in enumerate(made):
        file.append(b"%d" % at)
    assert len(files._open) == OPEN_FILES_MAX
    assert [file.read(0, 10) for file in made] == [b"%d" % at for at in range(len(made))]
    files.close_all()
