"""Memory for answers is used again, and never while somebody looks at it."""

from __future__ import annotations

import mmap

import pytest

pytest.importorskip("pyarrow", reason="the Spark source needs the extra [spark]")

import pyarrow as pa

from bridge.spark.decode import response_buffers
from bridge.spark.decode.response_buffers import FREE_SLOTS_MAX, SLOT_BYTES, SMALL_BYTES, ResponseBuffers


def address(answer: memoryview) -> int:
    found: int = pa.py_buffer(answer).address
    return found


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES - 1, SMALL_BYTES, SLOT_BYTES, SLOT_BYTES + 1])
def test_an_answer_has_its_size_and_can_be_written(size: int) -> None:
    answer = ResponseBuffers().allocate(size)
    assert len(answer) == size
    assert not answer.readonly
    answer[:] = b"x" * size
    assert bytes(answer[-1:]) == b"x" * min(size, 1)


def test_what_nobody_looks_at_any_more_is_used_again() -> None:
    memory = ResponseBuffers()
    first, second = memory.allocate(SMALL_BYTES), memory.allocate(SMALL_BYTES)
    places = {address(first), address(second)}
    assert len(places) == 2
    del first
    third = memory.allocate(2 * SMALL_BYTES)
    assert address(third) in places
    del second, third
    assert all(address(memory.allocate(SMALL_BYTES)) in places for _ in range(3))


def test_a_part_that_is_still_looked_at_is_not_written_over() -> None:
    memory = ResponseBuffers()
    answer = memory.allocate(SMALL_BYTES)
    answer[:] = b"a" * SMALL_BYTES
    part = answer[10:20].toreadonly()
    del answer
    later = memory.allocate(SMALL_BYTES)
    later[:] = b"b" * SMALL_BYTES
    assert part.tobytes() == b"a" * 10
    place = pa.py_buffer(part)
    del part
    last = memory.allocate(SMALL_BYTES)
    last[:] = b"c" * SMALL_BYTES
    assert place.to_pybytes() == b"a" * 10


def test_parts_of_an_answer_can_be_handed_on_and_kept_in_any_order() -> None:
    """What a frame is cut into refers to the answer, and not to the memoryview that it was cut from."""
    memory = ResponseBuffers()
    place = address(memory.allocate(SMALL_BYTES))
    answer = memory.allocate(SMALL_BYTES)
    assert address(answer) == place
    parts = [answer[:100], answer[50:].cast("B"), memoryview(answer)[7:8]]
    del answer
    while parts:
        assert address(memory.allocate(SMALL_BYTES)) != place
        parts.pop()
    assert address(memory.allocate(SMALL_BYTES)) == place


def test_no_more_is_kept_than_a_reader_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[mmap.mmap] = []
    new_slot = response_buffers._new_slot

    def counted() -> mmap.mmap:
        made.append(new_slot())
        return made[-1]

    monkeypatch.setattr(response_buffers, "_new_slot", counted)
    memory = ResponseBuffers()
    for _ in range(2):
        held = [memory.allocate(SMALL_BYTES) for _ in range(FREE_SLOTS_MAX + 1)]
        del held
    assert len(made) == FREE_SLOTS_MAX + 2


def test_memory_begins_where_a_huge_page_does() -> None:
    assert address(ResponseBuffers().allocate(SMALL_BYTES)) % response_buffers.HUGE_PAGE_BYTES == 0


def test_a_system_that_knows_no_huge_pages_gives_ordinary_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Plain)
    assert len(ResponseBuffers().allocate(SMALL_BYTES)) == SMALL_BYTES
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    assert len(ResponseBuffers().allocate(SMALL_BYTES)) == SMALL_BYTES
