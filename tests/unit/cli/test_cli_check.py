"""``zkconsumer check``: what it prints and with which code it exits."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from zkconsumer.cli.check import check

GOOD = """\
{"t": 1, "event": "log", "topic": "clicks", "partition": 0, "start": 0, "end": 3}
{"t": 1, "event": "member", "member": "a", "kind": "ours"}
{"t": 2, "event": "handed_range", "member": "a", "topic": "clicks", "partition": 0, "first": 0, "last": 1}
{"t": 4, "event": "handed", "member": "a", "topic": "clicks", "partition": 0, "offset": 2}
{"t": 5, "event": "drained"}
"""
BAD = GOOD.replace('"end": 3', '"end": 4')


def run(tmp_path: Path, text: str, *args: str) -> Result:
    path = tmp_path / "history.jsonl"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(check, [str(path), *args])


def test_a_good_history_exits_with_0(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD)
    assert result.exit_code == 0
    assert result.stdout.startswith("ok: 3 records in 1 partitions")
    assert result.stderr == ""


def test_findings_exit_with_5(tmp_path: Path) -> None:
    result = run(tmp_path, BAD)
    assert result.exit_code == 5
    assert "lost" in result.stdout
    assert "1 record: 3" in result.stdout


def test_json_holds_the_whole_verdict(tmp_path: Path) -> None:
    result = run(tmp_path, BAD, "-o", "json")
    assert result.exit_code == 5
    verdict = json.loads(result.stdout)
    assert [finding["code"] for finding in verdict["findings"]] == ["lost"]
    assert verdict["counts"]["delivered"] == 3


def test_an_unreadable_line_exits_with_2_and_names_the_line(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD + '{"t": 6, "event": "hnded"}\n')
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "history.jsonl: line 6: unknown event 'hnded'" in result.stderr


def test_a_contradiction_exits_with_2(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD.replace('"member": "a", "kind"', '"member": "b", "kind"'))
    assert result.exit_code == 2
    assert "line 3: member 'a' has no member line" in result.stderr


def test_a_missing_file_exits_with_2(tmp_path: Path) -> None:
    assert CliRunner().invoke(check, [str(tmp_path / "nothing.jsonl")]).exit_code == 2


def test_a_history_may_come_from_standard_input() -> None:
    assert CliRunner().invoke(check, ["-"], input=GOOD).exit_code == 0
