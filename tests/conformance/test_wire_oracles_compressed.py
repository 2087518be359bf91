"""Every package that can decode it decodes completely what real producers compressed and real brokers returned."""

from __future__ import annotations

import pytest

from tests.codec_fixtures import codecs_in_use  # noqa: F401
from tests.sandbox_fixtures import require_releases, require_zookeeper
from tests.wire_oracles import recorded_record_sets
from tests.wire_oracles.recorded_record_sets import CODECS, COUNTS, Compressed
from zkconsumer.wire import compression
from zkconsumer.wire.entries import codec_of, iter_entries
from zkconsumer.wire.records import iter_records

XERIAL_MAGIC = b"\x82SNAPPY\0"
ATTRIBUTES_AND_SIZES_BYTES = {0: 26, 1: 34, 2: 61}
"""Format → where the payload of an entry without a key begins."""

MAGIC = {"0.8.2.2": 0, "0.9.0.1": 0, "0.10.2.2": 1, "1.1.1": 2, "3.9.1": 2}
"""Broker → the format in which it keeps and sends records."""

every_broker = pytest.mark.parametrize("release", CODECS)


def payload(one: Compressed) -> bytes:
    """The compressed bytes of the first entry."""
    entry = next(iter_entries(one.data))
    return one.data[entry.position + ATTRIBUTES_AND_SIZES_BYTES[entry.magic] : entry.end]


def recorded(release: str, codec: str, producer: str = "") -> list[bytes]:
    """The payloads of one broker and codec, the largest last."""
    made = [
        each
        for each in recorded_record_sets.read(release)
        if each.codec == codec and each.producer.startswith(producer)
    ]
    return [payload(each) for each in sorted(made, key=lambda each: each.count)]


def check(release: str, made: list[Compressed]) -> None:
    magic = MAGIC[release]
    for one in made:
        entries = list(iter_entries(one.data))
        assert {entry.magic for entry in entries} == {magic}, str(one)
        assert {compression.CODEC_NAMES[codec_of(one.data, entry)] for entry in entries} == {one.codec}, str(one)
        records = list(iter_records(one.data))
        assert [each.offset for each in records] == list(range(one.count)), str(one)
        assert [each.value for each in records] == [recorded_record_sets.value(n) for n in range(one.count)], str(one)


@every_broker
def test_every_recorded_record_set_is_read(release: str) -> None:
    made = recorded_record_sets.read(release)
    assert {(one.codec, one.count) for one in made} == {(codec, count) for codec in CODECS[release] for count in COUNTS}
    check(release, made)


def test_no_recording_is_left_without_a_test() -> None:
    assert {recorded_record_sets.path_of(release) for release in CODECS} == set(recorded_record_sets.FOLDER.glob("*"))


@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1"])
def test_old_brokers_write_the_wrong_checksum_of_kafka_3160(release: str) -> None:
    for each in recorded(release, "lz4"):
        assert compression.decompress(compression.LZ4, each, 0, 1 << 20)
        with pytest.raises(compression.InvalidMessageException, match="checksum of the frame header"):
            compression.decompress(compression.LZ4, each, 1, 1 << 20)


def test_snappy_comes_in_blocks_of_two_sizes_and_as_one_raw_block() -> None:
    def blocks(data: bytes) -> int:
        assert data.startswith(XERIAL_MAGIC)
        position, count = 16, 0
        while position < len(data):
            position += 4 + int.from_bytes(data[position : position + 4], "big")
            count += 1
        return count

    assert blocks(recorded("0.10.2.2", "snappy", "Java")[-1]) > 2
    assert blocks(recorded("3.9.1", "snappy", "Java")[-1]) in (1, 2)
    assert not any(each.startswith(XERIAL_MAGIC) for each in recorded("3.9.1", "snappy", "librdkafka"))


def test_java_s_zstd_frames_have_no_content_size() -> None:
    assert {each[4] & 0xE0 for each in recorded("3.9.1", "zstd", "Java")} == {0}


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.timeout(600)
@every_broker
def test_a_new_recording_is_read(release: str) -> None:
    require_releases(release)
    require_zookeeper()
    check(release, recorded_record_sets.record(release))
