"""Record sets, read and written: against the Java clients' bytes, against kafka-python, and by their rules."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable

import google_crc32c
import pytest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec, UsageError
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import Record, RecordSetScan, iter_records, scan_record_set

START_MS = 1_500_000_000_000
APPEND_MS = 1_600_000_000_000
EVERY = [(magic, codec) for magic in (0, 1, 2) for codec in range(5 if magic == 2 else 4)]

WRITTEN_BY_JAVA = {
    # release of kafka-clients / format / codec [/ log append time], written by its MemoryRecords builder
    "0.9.0.1/0/0": (
        "AAAAAAAAAAAAAAAUs+878wAAAAAAAWEAAAAFaGVsbG8AAAAAAAAAAQAAAENCMZypAAD/////AAAANWhlbGxvIGhlbGxvIGhlbGxvIGhl"
        "bGxvIGhlbGxvIGhlbGxvIGhlbGxvIGhlbGxvIGhlbGxvAAAAAAAAAAIAAAASUJCT5wAAAAAABHRvbWL/////"
    ),
    "0.9.0.1/0/1": (
        "AAAAAAAAAAIAAABf9HiTYQAB/////wAAAFEfiwgAAAAAAAD/Y2CAA5HN760/g1mMiUCCNSM1JycfKscIxM5OhnNWMjD8BwIgzxQsrUAi"
        "CTWOCYiFAiZMfg7msZTk5yaBjAUAHATCDo0AAAA="
    ),
    "0.9.0.1/0/2": (
        "AAAAAAAAAAIAAAB14caaqwAC/////wAAAGeCU05BUFBZAAAAAAEAAAABAAAAU40BAAAZARAUs+878wUPKAFhAAAABWhlbGxvBRBQAAAB"
        "AAAAQ0IxnKkAAP////8AAAA1BR8AILoGAA1PWAIAAAASUJCT5wAAAAAABHRvbWL/////"
    ),
    "0.9.0.1/0/3": (
        "AAAAAAAAAAIAAABxqtzMAgAD/////wAAAGMEIk0YYEAaVAAAABYAAQBRFLPvO/MPALEBYQAAAAVoZWxsbxAA8QYAAAEAAABDQjGcqQAA"
        "/////wAAADUfAB8gBgAcAEwAwQAAAAIAAAASUJCT5w4AkAR0b21i/////wAAAAA="
    ),
    "1.1.1/1/0": (
        "AAAAAAAAAGQAAAAcLB1grgEAAAABXT73mAAAAAABYQAAAAVoZWxsbwAAAAAAAABlAAAASwYIYcoBAAAAAV0+95gF/////wAAADVoZWxs"
        "byBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbwAAAAAAAABoAAAAGkGn+UUBAAAAAV0+978QAAAA"
        "BHRvbWL/////"
    ),
    "1.1.1/1/1": (
        "AAAAAAAAAGgAAAByk2+hRgEBAAABXT73vxD/////AAAAXB+LCAAAAAAAAP9jYIADGR3ZhHWMQAZjrN33GSARxkQgwZqRmpOTD1UDkvZm"
        "40g8BVfH+h8IgBxTsDIFEkmosSxALOW4/KcrzNj9AiDRkvzcJJDxAEj6CCalAAAA"
    ),
    "1.1.1/1/2": (
        "AAAAAAAAAGgAAACPjzKQkgECAAABXT73vxD/////AAAAeYJTTkFQUFkAAAAAAQAAAAEAAABlpQEAABkBNBwsHWCuAQAAAAFdPveYARgo"
        "AWEAAAAFaGVsbG8BDwEbHAAAAEsGCGHKAQkFKCAF/////wAAADUFJwAgugYAAVQsAAAABAAAABpBp/lFEVc0vxAAAAAEdG9tYv////8="
    ),
    "1.1.1/1/3": (
        "AAAAAAAAAGgAAACHBRzimgEDAAABXT73vxD/////AAAAcQQiTRhgQIJiAAAAFgABAOAcLB1grgEAAAABXT73mBgAsAFhAAAABWhlbGxv"
        "DwAAGwCFAAAASwYIYcooAJEF/////wAAADUnAB8gBgAcAVUAtAAABAAAABpBp/lFVwDgvxAAAAAEdG9tYv////8AAAAA"
    ),
    "1.1.1/1/0/append": (
        "AAAAAAAAAGQAAAAcqLGlnAEIAAABdIdugAAAAAABYQAAAAVoZWxsbwAAAAAAAABlAAAAS2nys8sBCAAAAXSHboAA/////wAAADVoZWxs"
        "byBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbyBoZWxsbwAAAAAAAABoAAAAGm4Mzt4BCAAAAXSHboAAAAAA"
        "BHRvbWL/////"
    ),
    "1.1.1/1/1/append": (
        "AAAAAAAAAGgAAABxNMKedAEJAAABdIdugAD/////AAAAWx+LCAAAAAAAAP9jYIADmRUbl85h5GBgYCxpz2sAiTAmAgnWjNScnHyoGkYg"
        "9s78tPk0Qt1/IACKmoKVKZBIQo1lAWKpPJ5z91CsZynJz00CGQ8A1kJKJ6UAAAA="
    ),
    "1.1.1/2/0": (
        "AAAAAAAAAGQAAACO/////wJs3zwOAAAAAAAEAAABXT73mAAAAAFdPve/EP//////////////////AAAAAyYAAAACYQpoZWxsbwQCaAIx"
        "Am4BdgAKAgFqaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8AGACgnAEICHRvbWIBAA=="
    ),
    "1.1.1/2/1": (
        "AAAAAAAAAGQAAABy/////wLLvokSAAEAAAAEAAABXT73mAAAAAFdPve/EP//////////////////AAAAAx+LCAAAAAAAAP9TY2BgYErk"
        "ykjNyclnYcpgMmTKYyxj4GJizAILKZBIMkgwLJjDyMFRkp+bxMgAAFmf+x5dAAAA"
    ),
    "1.1.1/2/2": (
        "AAAAAAAAAGQAAAB3/////wIutxQZAAIAAAAEAAABXT73mAAAAAFdPve/EP//////////////////AAAAA4JTTkFQUFkAAAAAAQAAAAEA"
        "AAAyXWQmAAAAAmEKaGVsbG8EAmgCMQJuAXYACgIBagUTACC6BgA0ABgAoJwBCAh0b21iAQA="
    ),
    "1.1.1/2/3": (
        "AAAAAAAAAGQAAABy/////wJXTfMJAAMAAAAEAAABXT73mAAAAAFdPve/EP//////////////////AAAAAwQiTRhgQIIyAAAA8QsmAAAA"
        "AmEKaGVsbG8EAmgCMQJuAXYACgIBahMAHyAGABzgABgAoJwBCAh0b21iAQAAAAAA"
    ),
    "1.1.1/2/0/append": (
        "AAAAAAAAAGQAAACO/////wI+z/DjAAgAAAAEAAABXT73mAAAAAF0h26AAP//////////////////AAAAAyYAAAACYQpoZWxsbwQCaAIx"
        "Am4BdgAKAgFqaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8gaGVsbG8AGACgnAEICHRvbWIBAA=="
    ),
    "3.9.1/2/4": (
        "AAAAAAAAAGQAAABw/////wLqWAZ/AAQAAAAEAAABXT73mAAAAAFdPve/EP//////////////////AAAAAyi1L/0AWJwBAJQCJgAAAAJh"
        "CmhlbGxvBAJoAjECbgF2AAoCAWogABgAoJwBCAh0b21iAQACAKSE0No5BgEAAA=="
    ),
    "3.9.1/2/control": (
        "AAAAAAAAAGkAAABCAAAAAwItHR4fADAAAAAAAAABdIdugAAAAAF0h26AAAAAAAAAAABNAAH/////AAAAASAAAAAIAAAAAQwAAAAAAAkA"
    ),
}


def three(magic: int, offsets: tuple[int, int, int] = (100, 101, 104), append: bool = False) -> list[Record]:
    """What the Java programs were told to write: a plain record, one without a key, and a tombstone after a gap."""
    kind = -1 if magic == 0 else 1 if append else 0
    times = [-1 if magic == 0 else APPEND_MS if append else START_MS + later for later in (0, 5, 10_000)]
    headers = (("h", b"1"), ("n", None)) if magic == 2 else ()
    return [
        Record(offsets[0], times[0], kind, b"a", b"hello", headers),
        Record(offsets[1], times[1], kind, None, b" ".join([b"hello"] * 9)),
        Record(offsets[2], times[2], kind, b"tomb", None),
    ]


def java_bytes(name: str) -> bytes:
    return base64.b64decode(WRITTEN_BY_JAVA[name])


def numbered(first: int, last: int, magic: int = 2) -> list[Record]:
    """Records ``first`` to ``last``, each distinct from the others."""
    kind = -1 if magic == 0 else 0
    return [
        Record(offset, -1 if magic == 0 else START_MS + offset, kind, b"k%d" % offset, b"value %d" % offset)
        for offset in range(first, last + 1)
    ]


def with_attributes(batch: bytes, change: Callable[[int], int]) -> bytes:
    """A batch of format 2 with other attributes and the checksum that goes with them."""
    attributes = struct.pack(">h", change(struct.unpack_from(">h", batch, 21)[0]))
    covered = attributes + batch[23:]
    return batch[:17] + struct.pack(">I", google_crc32c.value(covered)) + covered


# --- against the Java clients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in WRITTEN_BY_JAVA if "control" not in name])
def test_what_the_java_clients_wrote_is_read(name: str) -> None:
    release, magic, _codec, *append = name.split("/")
    offsets = (0, 1, 2) if release == "0.9.0.1" else (100, 101, 104)
    assert list(iter_records(java_bytes(name))) == three(int(magic), offsets, bool(append))


@pytest.mark.parametrize("name", list(WRITTEN_BY_JAVA))
def test_what_the_java_clients_wrote_is_scanned(name: str) -> None:
    release, magic, codec, *_ = name.split("/")
    record_set = java_bytes(name)
    found = scan_record_set(record_set)
    assert (found.complete_bytes, found.truncated) == (len(record_set), False)
    assert found.entries == (3 if magic != "2" and codec == "0" else 1)
    assert found.next_offset == {"0.9.0.1": 3}.get(release, 106 if codec == "control" else 105)


@pytest.mark.parametrize(
    ("name", "append"), [("0.9.0.1/0/0", False), ("1.1.1/1/0", False), ("1.1.1/1/0/append", True), ("1.1.1/2/0", False)]
)
def test_uncompressed_record_sets_are_written_byte_for_byte_as_by_the_java_clients(name: str, append: bool) -> None:
    record_set = java_bytes(name)
    magic = int(name.split("/")[1])
    assert build_record_set(iter_records(record_set), magic, log_append_time=append) == record_set


def test_a_control_batch_is_skipped_but_its_offset_is_passed() -> None:
    marker = java_bytes("3.9.1/2/control")
    assert list(iter_records(marker)) == []
    assert scan_record_set(marker).next_offset == 106


# --- against kafka-python ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_kafka_python_reads_what_we_write(magic: int, codec: int) -> None:
    records = three(magic)
    seen = [
        (record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for batch in MemoryRecords(build_record_set(records, magic, codec))
        if batch.validate_crc()
        for record in batch
    ]
    assert seen == [
        (record.offset, record.timestamp if magic else None, record.key, record.value, list(record.headers))
        for record in records
    ]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_kafka_python_writes_is_read(magic: int, codec: int) -> None:
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20)
    records = three(magic, (0, 1, 2))
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    record_set = bytes(builder.buffer())
    if codec and magic < 2:
        # A producer may leave the offset of a wrapper at 0; the broker puts the last one there.
        record_set = struct.pack(">q", 2) + record_set[8:]
    assert list(iter_records(record_set)) == records
    assert scan_record_set(record_set).next_offset == 3


# --- what iter_records hands out --------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), EVERY)
def test_records_below_the_start_are_dropped_also_inside_an_entry(magic: int, codec: int) -> None:
    record_set = build_record_set(numbered(0, 4, magic), magic, codec)
    record_set += build_record_set(numbered(5, 9, magic), magic, codec)
    for start in range(12):
        assert list(iter_records(record_set, start)) == numbered(start, 9, magic)


@pytest.mark.parametrize("kind", [bytes, memoryview, bytearray])
def test_any_buffer_is_read_and_keys_and_values_are_bytes(kind: Callable[[bytes], bytes]) -> None:
    for magic, codec in EVERY:
        record_set = kind(build_record_set(numbered(0, 4, magic), magic, codec))
        records = list(iter_records(record_set))
        assert records == numbered(0, 4, magic)
        assert {type(field) for record in records for field in (record.key, record.value)} == {bytes}
        assert scan_record_set(record_set).next_offset == 5


def test_one_record_set_may_hold_every_format_and_codec() -> None:
    record_set = b""
    expected = []
    for number, (magic, codec) in enumerate(EVERY):
        batch = numbered(10 * number, 10 * number + 4, magic)
        record_set += build_record_set(batch, magic, codec)
        expected += batch
    assert list(iter_records(record_set)) == expected
    assert scan_record_set(record_set).next_offset == expected[-1].offset + 1


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in EVERY if pair[0] > 0])
def test_with_log_append_time_all_records_have_the_append_time(magic: int, codec: int) -> None:
    record_set = build_record_set(numbered(0, 4), magic, codec, log_append_time=True)
    assert {(r.timestamp, r.timestamp_type) for r in iter_records(record_set)} == {(START_MS + 4, 1)}


@pytest.mark.parametrize("codec", range(4))
def test_inner_offsets_of_format_1_count_back_from_the_wrapper(codec: int) -> None:
    # As compaction leaves it: the first records are gone, and inner offsets do not start at 0.
    records = [record for record in numbered(1000, 1009) if record.offset in (1003, 1004, 1008)]
    record_set = build_record_set(records, 1, codec, base_offset=1000)
    assert list(iter_records(record_set)) == records
    assert scan_record_set(record_set).next_offset == 1009


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_may_have_gaps_before_between_and_after_its_records(codec: int) -> None:
    records = [record for record in numbered(1000, 1009) if record.offset in (1003, 1004, 1008)]
    record_set = build_record_set(records, 2, codec, base_offset=1000, last_offset=1020)
    assert list(iter_records(record_set)) == records
    assert (scan_record_set(record_set).first_offset, scan_record_set(record_set).next_offset) == (1000, 1021)


@pytest.mark.parametrize("codec", range(5))
def test_an_empty_batch_has_no_record_and_moves_the_next_offset(codec: int) -> None:
    record_set = build_record_set([], 2, codec, base_offset=7, last_offset=9) + build_record_set(numbered(10, 11), 2)
    assert list(iter_records(record_set)) == numbered(10, 11)
    assert scan_record_set(record_set[:61]) == RecordSetScan(61, 1, 7, 10, False)


def test_a_batch_all_of_whose_records_are_below_the_start_is_not_decompressed() -> None:
    batch = with_attributes(build_record_set(numbered(0, 4), 2), lambda attributes: attributes | 1)
    assert list(iter_records(batch, 5)) == []
    with pytest.raises(InvalidMessageException, match="gzip"):
        list(iter_records(batch, 4))


@pytest.mark.parametrize("flag", [0x10, 0x40], ids=["transactional", "delete horizon"])
def test_the_other_attributes_of_a_batch_change_nothing(flag: int) -> None:
    batch = with_attributes(build_record_set(numbered(0, 4), 2), lambda attributes: attributes | flag)
    assert list(iter_records(batch)) == numbered(0, 4)


def test_our_control_batches_are_control_batches() -> None:
    record_set = build_record_set(numbered(0, 0), 2, control=True) + build_record_set(numbered(1, 1), 2)
    assert list(iter_records(record_set)) == numbered(1, 1)
    assert [batch.is_control_batch for batch in MemoryRecords(record_set)] == [True, False]


@pytest.mark.parametrize("codec", range(5))
def test_large_fields_and_far_deltas_take_long_varints(codec: int) -> None:
    records = [
        Record(0, 0, 0, b"k" * 64, b"v" * 63),
        Record(63, 63, 0, b"k" * 8191, b"v" * 8192),
        Record(64, -64, 0, b"", b"", (("", b""), ("h" * 200, b"v" * 9000))),
        Record(8191, -65, 0, b"k" * 70_000, b"v" * 2_000_000),
        Record(8192, 2**63 - 1, 0, None, None),
        Record(2**31 - 1, -(2**62), 0, None, b"", tuple((f"h{n}", None) for n in range(200))),
    ]
    assert list(iter_records(build_record_set(records, 2, codec))) == records


def test_a_header_key_that_is_not_utf_8_is_mended_as_in_java() -> None:
    batch = build_record_set([Record(0, 0, 0, None, None, (("key!", b"v"),))], 2)
    batch = with_attributes(batch.replace(b"key!", b"k\xffy!"), lambda attributes: attributes)
    assert [record.headers for record in iter_records(batch)] == [(("k\ufffdy!", b"v"),)]


@pytest.mark.parametrize(("magic", "codec"), EVERY)
def test_checksums_are_verified_unless_told_otherwise(magic: int, codec: int) -> None:
    record_set = bytearray(build_record_set(numbered(0, 4, magic), magic, codec))
    record_set[17 if magic == 2 else 12] ^= 0x40
    with pytest.raises(InvalidMessageException, match=r"offset.* checksum"):
        list(iter_records(bytes(record_set)))
    assert list(iter_records(bytes(record_set), check_crcs=False)) == numbered(0, 4, magic)


# --- errors and what stands around them -------------------------------------------------------------------------


def test_what_stands_before_a_bad_entry_is_handed_out_first_and_reading_can_go_on_behind_it() -> None:
    good, bad, after = (bytearray(build_record_set(numbered(n, n + 4), 2)) for n in (0, 5, 10))
    bad[-1] ^= 1
    record_set = bytes(good + bad + after)
    records = iter_records(record_set)
    assert [next(records) for _ in range(5)] == numbered(0, 4)
    with pytest.raises(InvalidMessageException, match=r"offset 5 .*checksum") as caught:
        next(records)
    behind = len(good) + len(bad)
    assert vars(caught.value) == {
        "offset": 5, "position": len(good), "next_position": behind, "next_offset": 10
    }  # fmt: skip
    assert list(iter_records(record_set[len(good) + len(bad) :])) == numbered(10, 14)


def test_scan_says_how_much_is_sound_before_an_entry_that_cannot_be() -> None:
    good = build_record_set(numbered(0, 4), 2)
    with pytest.raises(InvalidMessageException, match="size of 13 bytes") as caught:
        scan_record_set(good + struct.pack(">qi", 5, 13))
    assert vars(caught.value) == {"offset": 5, "position": len(good), "next_position": -1, "next_offset": -1}
    assert scan_record_set(good[: vars(caught.value)["position"]]).next_offset == 5


def test_a_codec_that_is_not_known_is_named_with_the_offset_and_can_be_passed() -> None:
    batch = with_attributes(build_record_set(numbered(3, 4), 2), lambda attributes: attributes | 6)
    with pytest.raises(UnsupportedCodec, match=r"offset 3 .*codec 6") as caught:
        list(iter_records(batch))
    assert vars(caught.value)["next_position"] == len(batch)


def test_nothing_is_decoded_before_it_is_asked_for() -> None:
    records = iter_records(b"\xff" * 100)
    with pytest.raises(InvalidMessageException):
        next(records)


# --- scan -------------------------------------------------------------------------------------------------------


def test_nothing_has_no_offsets() -> None:
    assert scan_record_set(b"") == RecordSetScan(0, 0, -1, -1, False)
    assert list(iter_records(b"")) == []


@pytest.mark.parametrize(("magic", "codec"), EVERY)
def test_a_tail_cut_anywhere_is_truncated_and_not_an_error(magic: int, codec: int) -> None:
    first = build_record_set(numbered(0, 0, magic), magic, codec)
    record_set = first + build_record_set(numbered(1, 1, magic), magic, codec)
    is_wrapper = magic < 2 and codec > 0
    for size in range(1, len(first)):
        assert scan_record_set(record_set[:size]) == RecordSetScan(0, 0, -1, -1, True)
    for size in range(len(first) + 1, len(record_set)):
        assert scan_record_set(record_set[:size]) == RecordSetScan(len(first), 1, 0, 1, True, is_wrapper)
        assert list(iter_records(record_set[:size])) == numbered(0, 0, magic)
    assert scan_record_set(record_set) == RecordSetScan(len(record_set), 2, 0, 2, False, is_wrapper)


def test_the_filler_that_brokers_put_in_place_of_a_batch_too_large_to_convert_is_a_cut_off_tail() -> None:
    # Down-conversion (2.0 and later) may leave no room: offset, a size that is not there, zeros.
    filler = struct.pack(">qi", 17, 4096) + bytes(200)
    assert scan_record_set(filler) == RecordSetScan(0, 0, -1, -1, True)
    assert list(iter_records(filler)) == []


def test_scan_looks_neither_at_payloads_nor_at_checksums() -> None:
    batch = build_record_set(numbered(0, 4), 2)
    assert scan_record_set(batch[:17] + b"\xff" * 6 + batch[23:27] + b"\xff" * (len(batch) - 27)).next_offset == 5


def test_the_first_offset_of_a_wrapper_is_its_last_one() -> None:
    assert scan_record_set(build_record_set(numbered(3, 9, 1), 1, 1)).first_offset == 9


# --- what cannot be written -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "magic", "options"),
    [
        (numbered(0, 1), 3, {}),
        (numbered(0, 1), 1, {"control": True}),
        ([Record(0, 0, 0, None, None, (("h", None),))], 1, {}),
        ([], 1, {"base_offset": 3}),
        (numbered(0, 1), 1, {"last_offset": 5}),
        (numbered(0, 1)[::-1], 2, {}),
        (numbered(3, 4), 2, {"base_offset": 4}),
        (numbered(3, 4), 2, {"last_offset": 3}),
        (numbered(0, 1), 2, {"last_offset": 2**31}),
        ([Record(0, 2**63, 0, None, None)], 1, {}),
    ],
)
def test_what_a_format_cannot_express_is_refused(
    records: list[Record], magic: int, options: dict[str, int | bool]
) -> None:
    with pytest.raises(UsageError):
        build_record_set(records, magic, 0, **options)


@pytest.mark.parametrize(("magic", "codec"), [(0, 4), (1, 4), (2, 5)])
def test_a_codec_that_a_format_has_not_is_refused(magic: int, codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        build_record_set(numbered(0, 1, magic), magic, codec)


@pytest.mark.parametrize(("magic", "codec"), EVERY)
def test_no_records_make_no_bytes(magic: int, codec: int) -> None:
    assert build_record_set([], magic, codec) == b""


def test_a_batch_whose_records_have_different_headers_and_large_fields_is_read_back() -> None:
    """Headers are encoded again only where the tuple is another one; sizes beyond the table of small varints."""
    shared = (("a", b"1"),)
    records = [
        Record(at, 1_000 - at, 0, b"k" * size, None if size == 3 else b"v" * size, headers)
        for at, (size, headers) in enumerate(
            [(0, ()), (3, shared), (4_095, shared), (4_096, (("a", None),)), (70_000, ()), (1, shared)]
        )
    ]
    assert list(iter_records(build_record_set(records, 2))) == records
