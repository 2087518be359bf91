"""The reconciliation of the example ``secor_to_spark``: which records are lost, and which may be in both outputs."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

from tests.figures import ROOT

P = ("clicks", 0)
OTHER = ("clicks", 1)


def load() -> ModuleType:
    """The module, which is in no package."""
    spec = importlib.util.spec_from_file_location(
        "secor_reconciliation", ROOT / "examples" / "secor_to_spark" / "reconciliation.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


module = load()


def upload(first: int, last: int, read: int, written: int, *, partition: Any = P, member: str = "secor-1") -> Any:
    return module.Upload(member, partition, first, last, 0, 5000, read, written)


def reconciled(end: int, old: range, spark: range, *uploads: Any) -> Any:
    return module.reconcile({P: end}, {P: Counter(old)}, {P: Counter(spark)}, uploads)


def test_each_record_in_one_output_is_right() -> None:
    found = reconciled(10, range(6), range(6, 10), upload(0, 5, -1, 0))
    assert (found.produced, found.old, found.spark) == (10, 6, 4)
    assert (found.lost, found.double, found.repeated, found.unknown) == (0, 0, 0, 0)
    assert found.is_right(permits_doubles=False)


def test_a_record_in_no_output_is_lost() -> None:
    found = reconciled(10, range(5), range(6, 10))
    assert found.lost == 1
    assert found.problems == ("clicks/0 offsets 5 to 5: lost",)
    assert not found.is_right(permits_doubles=True)


def test_a_record_in_both_outputs_is_permitted_if_spark_wrote_the_offset_during_its_upload() -> None:
    during = upload(4, 7, 2, 5)
    found = reconciled(10, range(8), range(5, 10), during)
    [each] = found.doubles
    assert (each.partition, each.first, each.last, each.upload, each.writes_by_spark) == (P, 5, 7, during, 2)
    assert (found.double, found.unexplained) == (3, 0)
    assert found.is_right(permits_doubles=True)
    assert not found.is_right(permits_doubles=False)


@pytest.mark.parametrize(
    "uploads",
    [
        pytest.param([], id="no upload"),
        pytest.param([upload(4, 7, 2, 3)], id="nobody wrote the offset during the upload"),
        pytest.param([upload(4, 7, -1, 0)], id="the upload created the offset"),
        pytest.param([upload(4, 7, 2, 4, partition=OTHER)], id="the upload of another partition"),
        pytest.param([upload(0, 4, 2, 4)], id="the upload of other records"),
        pytest.param([upload(4, 7, 2, 4), upload(0, 3, 1, 3, member="secor-2")], id="another old member wrote it"),
    ],
)
def test_a_record_in_both_outputs_is_wrong_without_such_an_upload(uploads: list[Any]) -> None:
    found = reconciled(10, range(8), range(5, 10), *uploads)
    assert (found.double, found.unexplained) == (3, 3)
    assert not found.is_right(permits_doubles=True)


def test_a_range_ends_where_its_upload_ends() -> None:
    found = reconciled(10, range(8), range(2, 10), upload(0, 4, 0, 2), upload(5, 7, 2, 4))
    assert [(each.first, each.last, each.upload.first) for each in found.doubles] == [(2, 4, 0), (5, 7, 5)]


def test_a_part_of_a_range_without_an_upload_is_a_range_of_its_own() -> None:
    found = reconciled(10, range(8), range(2, 10), upload(0, 4, 0, 2))
    assert [(each.first, each.last, each.upload is None) for each in found.doubles] == [(2, 4, False), (5, 7, True)]
    assert found.unexplained == 3


def test_a_record_that_one_output_has_twice_is_wrong() -> None:
    found = module.reconcile({P: 3}, {P: Counter([0, 1, 1])}, {P: Counter([2])}, [])
    assert found.repeated == 1
    assert found.problems == ("clicks/0 offsets 1 to 1: more than once in the output of the old members",)
    assert not found.is_right(permits_doubles=True)


def test_a_record_that_is_not_in_the_log_is_wrong() -> None:
    found = reconciled(3, range(2), range(2, 4))
    assert found.unknown == 1
    assert found.problems == ("clicks/0 offsets 3 to 3: not in the log",)
    assert not found.is_right(permits_doubles=True)


def test_a_partition_that_is_in_no_output_is_lost() -> None:
    found = module.reconcile({P: 3, OTHER: 2}, {P: Counter(range(3))}, {}, [])
    assert found.lost == 2


def test_each_range_of_lost_records_is_named() -> None:
    found = reconciled(12, range(2), range(5, 9))
    assert found.problems == ("clicks/0 offsets 2 to 4: lost", "clicks/0 offsets 9 to 11: lost")
