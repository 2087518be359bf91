"""The plan in its file: whole or not at all, and read as it was written or not."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.migration.plan.plan_file import (
    InvalidPlanFileError,
    PlanNotWrittenError,
    check_plan_file_target,
    plan_from_bytes,
    plan_to_bytes,
    read_plan_file,
)
from bridge.migration.plan.plan_file import write_plan_file as write
from bridge.migration.plan.plan_json import digest_of_plan
from tests.migration.group_snapshots import at_end, partition, plan, rich_plan, tp
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    for made in (plan(), rich_plan(), plan(strategy="dual")):
        write(tmp_path / "p.json", made)
        assert read_plan_file(tmp_path / "p.json") == made
        assert plan_from_bytes(plan_to_bytes(made)) == made
        assert plan_to_bytes(made) == (tmp_path / "p.json").read_bytes()


def test_the_digest_is_over_everything_else() -> None:
    made = rich_plan()
    assert made.digest == digest_of_plan(made) == digest_of_plan(replace(made, digest="x"))
    others = [
        replace(made, migration_id="m2"),
        replace(made, warnings=()),
        replace(made, decisions=replace(made.decisions, acl_fence=True)),
        replace(made, partitions=(replace(made.partitions[0], target=1), *made.partitions[1:])),
        replace(made, snapshot=replace(made.snapshot, acls={**made.snapshot.acls, "/consumers/g1/ids": ()})),
    ]
    assert len({made.digest, *map(digest_of_plan, others)}) == len(others) + 1


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    """Access lists hold the hashes of passwords."""
    write(tmp_path / "p.json", plan())
    assert stat.S_IMODE((tmp_path / "p.json").stat().st_mode) == 0o600


def test_a_file_that_was_cut_off_is_no_plan(tmp_path: Path) -> None:
    lines = plan_to_bytes(plan(partition(0), partition(1), partition(2))).splitlines(keepends=True)
    for count in range(len(lines)):
        with pytest.raises(InvalidPlanFileError):
            plan_from_bytes(b"".join(lines[:count]))
    for length in range(0, len(b"".join(lines)) - 1, 97):
        with pytest.raises(InvalidPlanFileError):
            plan_from_bytes(b"".join(lines)[:length])
    with pytest.raises(InvalidPlanFileError, match=r"p\.json cannot be read: No such file"):
        read_plan_file(tmp_path / "p.json")


def test_a_file_that_was_changed_is_no_plan() -> None:
    data = plan_to_bytes(plan(partition(0, 42), partition(1, 50), at_end(2)))
    changed = [
        data.replace(b'"target":42', b'"target":43'),
        data.replace(b'"stored":50', b'"stored":51'),
        data.replace(b'"group":"g1"', b'"group":"g2"'),
        data.replace(b'"strategy":"copy"', b'"strategy":"dual"'),
    ]
    for each in changed:
        assert each != data
        with pytest.raises(InvalidPlanFileError):
            plan_from_bytes(each)
    with pytest.raises(InvalidPlanFileError, match="its digest differs"):
        plan_from_bytes(changed[0])
    lines = data.splitlines(keepends=True)
    with pytest.raises(InvalidPlanFileError):
        plan_from_bytes(b"".join([lines[0], lines[2], lines[1], lines[3]]))


def full_disk(_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_plan_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.json"
    write(path, plan())
    before = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(PlanNotWrittenError, match=rf"cannot be written to {path}: No space left on device") as it:
            write(path, rich_plan())
    assert it.value.exit_code == 1
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["p.json"]


def test_a_file_that_may_not_grow_is_not_left_half_written(tmp_path: Path) -> None:
    """A real write that is cut off in the middle."""
    made = plan(*(partition(number) for number in range(200)))
    assert len(plan_to_bytes(made)) > 16_384
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(PlanNotWrittenError, match="File too large"):
            write(tmp_path / "p.json", made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["mkstemp", "replace"])
def test_a_folder_that_cannot_be_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(f"tempfile.{name}" if name == "mkstemp" else f"os.{name}", refuse)
        with pytest.raises(PlanNotWrittenError, match=r"p\.json: Read-only file system"):
            write(tmp_path / "p.json", plan())
    assert os.listdir(tmp_path) == []
    with pytest.raises(PlanNotWrittenError, match="No such file or directory"):
        write(tmp_path / "nowhere" / "p.json", plan())


def test_a_file_that_is_no_plan_of_the_group_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    check_plan_file_target(path, "g1")
    write(path, plan())
    check_plan_file_target(path, "g1")
    for group in ("g", "g11", "g2"):
        with pytest.raises(PreconditionFailed, match=rf"exists and is no plan of group {group}: name another file"):
            check_plan_file_target(path, group)
    path.write_text("shopping list\n")
    with pytest.raises(PreconditionFailed, match="exists and is no plan of group g1"):
        check_plan_file_target(path, "g1")
    with pytest.raises(PreconditionFailed, match="is not a regular file"):
        check_plan_file_target(Path("/dev/null"), "g1")


@pytest.mark.parametrize("make", [plan, rich_plan])
def test_partitions_and_paths_are_found_again(make: Callable[[], Any]) -> None:
    again = plan_from_bytes(plan_to_bytes(make()))
    assert list(again.snapshot.partitions) == [row.tp for row in again.partitions]
    assert all(isinstance(one, TopicPartition) for one in again.snapshot.partitions)
    assert tp(0) in again.snapshot.partitions
