"""The record decoder under a fuzzer, with AddressSanitizer and UBSan: ten minutes each night, its corpus in CI.

libFuzzer comes with clang (Debian: ``apt-get install clang``).  ``decoder_fuzzer.c`` says what is checked.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.extension_builder import build
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.request_frames import SIZE_BYTES, encode_response
from zkconsumer.wire.schemas import FETCH
from zkconsumer.wire.schemas.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse

SOURCE = "tests/sanitizers/decoder_fuzzer.c"
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
FUZZ_S = int(os.environ.get("ZKCONSUMER_FUZZ_S", "600"))


def corpus() -> list[bytes]:
    """Record sets of each format and codec, whole and damaged, with each kind of options."""
    made: list[bytes] = []
    chance = random.Random(20)
    for magic in (0, 1, 2):
        for codec in (0, 1, 2, 3):
            for size in (1, 3, 40):
                records = [
                    Record(
                        offset, 1_000 + offset if magic else -1, 0 if magic else -1,
                        None if offset % 3 == 0 else b"k%d" % offset, None if offset % 5 == 4 else b"v" * (offset % 7),
                        (("h", b"x"), ("i", None)) if magic == 2 and offset % 2 else (),
                    )
                    for offset in range(size)
                ]  # fmt: skip
                whole = build_record_set(records, magic, codec)
                if codec and magic < 2:
                    # The fuzzer enters a payload as it is, so a wrapper holds an uncompressed message set.
                    whole = build_record_set(records, magic, 0)
                for options in (b"\0\0\0\0", b"\7\2\x14\0", b"\4\0\0\1"):
                    made.append(options + whole)
                    damaged = bytearray(options + whole + whole)
                    damaged[chance.randrange(4, len(damaged))] ^= 1 << chance.randrange(8)
                    made.append(bytes(damaged))
                    made.append(options + whole[: chance.randrange(len(whole))])
    return made + fetch_answers(chance)


def fetch_answers(chance: random.Random) -> list[bytes]:
    """Answers to a Fetch of each version, whole and damaged; the first byte says which version."""
    made: list[bytes] = []
    records = build_record_set([Record(5, 0, 0, None, b"v")], 2)
    rows = [
        FetchPartitionResponse(partition_index=index, high_watermark=6, records=data)
        for index, data in enumerate((records, b"", None))
    ]
    for version in range(13):
        topics = [FetchTopicResponse(topic=name, partitions=rows) for name in ("t", "long-topic")]
        body = FetchResponse(responses=topics)
        answer = encode_response(FETCH, version, 7, body)[SIZE_BYTES + (5 if FETCH.is_flexible(version) else 4) :]
        options = bytes([version, 0, 0, 0])
        damaged = bytearray(answer)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        made += [options + answer, options + bytes(damaged), options + answer[: chance.randrange(len(answer))]]
    return made


def written(folder: Path) -> list[str]:
    folder.mkdir()
    for index, data in enumerate(corpus()):
        (folder / f"{index:04}").write_bytes(data)
    return sorted(map(str, folder.iterdir()))


def test_the_corpus_passes_under_the_sanitizers(tmp_path: Path) -> None:
    program = build(SOURCE, tmp_path / "corpus", *SANITIZED, "-DWITHOUT_LIBFUZZER", python=False)
    done = subprocess.run(
        [program, *written(tmp_path / "inputs")], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(FUZZ_S + 300)
def test_ten_minutes_of_fuzzing_find_nothing(tmp_path: Path) -> None:
    clang = next(filter(None, map(shutil.which, ("clang", "clang-19", "clang-17", "clang-15", "clang-14"))), None)
    if clang is None:
        pytest.skip("there is no clang, which brings libFuzzer: install the Debian package clang")
    program = tmp_path / "fuzzer"
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        [clang, "-std=c11", "-g", "-O1", "-fsanitize=fuzzer,address,undefined", str(root / SOURCE), "-o", str(program)],
        check=True,
    )
    written(tmp_path / "inputs")
    done = subprocess.run(
        [program, str(tmp_path / "inputs"), f"-max_total_time={FUZZ_S}", "-max_len=4096", "-print_final_stats=1",
         f"-artifact_prefix={tmp_path}/"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    failed = [f"{path.name}: {path.read_bytes().hex()}" for path in tmp_path.glob("crash-*")]
    assert done.returncode == 0, "\n".join([*failed, done.stderr[-4000:]])
    print(done.stderr[-600:])
