"""The tutorial "Into Spark" is what it says: its blocks are run, in one shell, and print what the page shows."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.doc_page_runner import ROOT, blocks, check_page
from tests.sandbox_fixtures import require_releases
from tests.spark_session_fixtures import require_spark
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture: TypeAlias = pytest.CaptureFixture[str]

pytestmark = pytest.mark.real

PAGE = ROOT / "migration_docs" / "tutorial" / "03-into-spark.md"
RUN_TIMEOUT_S = 420


def programs() -> Iterator[tuple[str, str]]:
    """The files that the page has its reader write."""
    for block in blocks(PAGE):
        yield from re.findall(r"(?ms)^cat > (\w+\.py) <<'END'\n(.*?)^END$", block.commands)


def test_the_programs_of_the_page_are_python() -> None:
    names = [name for name, text in programs() if compile(text, name, "exec")]
    assert names == ["look.py", "feed.py"]


def test_a_look_at_a_group_prints_what_the_page_shows(
    spark: SparkSession, shared_cluster: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The first program, where the page has come to by then; it finds a session, and makes none."""
    shared_cluster.create_topic("clicks", 4)
    for partition in range(4):
        shared_cluster.produce("clicks", partition, 75)
        shared_cluster.admin.put(f"/consumers/tutorial/offsets/clicks/{partition}", b"25")
    (tmp_path / "look.py").write_text(dict(programs())["look.py"])
    monkeypatch.setattr(sys, "argv", ["look.py", shared_cluster.zookeeper_connect])
    runpy.run_path(str(tmp_path / "look.py"), run_name="__main__")
    [shown] = [block.shown for block in blocks(PAGE) if "look.py <<" in block.commands]
    assert capsys.readouterr().out.strip() == shown.strip()


@pytest.mark.nightly
@pytest.mark.timeout(RUN_TIMEOUT_S + 60)
@pytest.mark.usefixtures("own_cache")
def test_the_page_runs_unchanged(tmp_path: Path) -> None:
    require_spark()
    require_releases("1.1.1")
    folder = tmp_path / "page"
    folder.mkdir()
    check_page(PAGE, folder, RUN_TIMEOUT_S)
