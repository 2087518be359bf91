"""What ``bench/streams.py`` computes, writes and refuses; nothing is measured here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.project import test_docs
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import iter_records

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "peers")]

import plots  # noqa: E402
import protocol  # noqa: E402
import stream_gates  # noqa: E402
import stream_page  # noqa: E402
import stream_peers  # noqa: E402
import streams  # noqa: E402
import tail_producer  # noqa: E402
from gates import Gate  # noqa: E402
from shapes import HEADERS, Shape  # noqa: E402
from stream_cells import CELLS, columns_of  # noqa: E402
from stream_process import Command, PeerFailed, PeerProcess  # noqa: E402
from stream_results import (  # noqa: E402
    AS_OURS,
    BEST,
    FIELDS,
    CellResult,
    Results,
    Run,
    difference,
    joined,
    percentile,
    problems,
    ratio,
)
from topics import Filled, on_disk  # noqa: E402

ROUNDS = 5
COMMIT = "0123456789ab"


def cost_of(peer: str) -> float:
    """µs a message, made up: ours .1, then .2, .3, ..."""
    return 0.1 * (1 + list(stream_peers.PEER_TABLE).index(peer))


def made_up(*, left_out: tuple[str, str] = ("", ""), cells: tuple[str, ...] = tuple(CELLS)) -> Results:
    """Readings of every peer in every cell; each round costs a little more than the one before."""
    made = []
    for name in cells:
        cell = CELLS[name]
        disk = {"magic": cell.shape.magic, "codec": "none", "batch_bytes": 16_000.5, "records_a_batch": 140.2}
        result = CellResult(
            name, cell.title, str(cell.shape), cell.shape.size, cell.partitions, cell.messages, cell.messages // 10,
            cell.rate, {} if cell.rate else disk, COMMIT,
        )  # fmt: skip
        for peer, column in cell.columns:
            if peer in cell.cannot:
                result.not_run[f"{peer} {column}"] = cell.cannot[peer]
            elif (peer, column) == left_out:
                result.not_run[f"{peer} {column}"] = "a | reason"
            else:
                late = (0.0, (1.0, 3.0 + cost_of(peer))) if cell.rate else (0.25, None)
                result.runs += [
                    Run(peer, column, number, 1_000_000, cost_of(peer) * (1 + number / 100), 2.0, *late)
                    for number in range(1, ROUNDS + 1)
                ]
        made.append(result)
    peers = {
        name: {
            "title": peer.title,
            "difference": peer.difference,
            "versions": {"version": "1.2.3", "extension": True},
            "settings": {column: dict(settings) for column, settings in peer.columns.items()},
        }
        for name, peer in stream_peers.PEER_TABLE.items()
    }
    found = {"processor": "a processor", "cores": 2, "memory_gib": 24, "system": "Linux 6", "python": "3.11.9"}
    spark = [
        {
            "what": "Spark, 100B noop: CPU a row ÷ the commit before", "value": 0.97, "gate": 1.05, "goal": 1.0,
            "unit": "x", "at_least": False, "note": "0.95 to 1.01",
        }
    ]  # fmt: skip
    return Results(
        started="2026-11-25T12:00:00+00:00", command="python bench/streams.py --write", machine=found,
        load_at_start=0.1, rounds=ROUNDS, scale=1.0, is_quick=False, broker="3.9.1", commit=COMMIT,
        before="ba9876543210", peers=peers, cells=made, spark=spark, seconds=5000.0,
    )  # fmt: skip


# --- arithmetic -----------------------------------------------------------------------------------------------------


def test_a_ratio_is_that_of_medians_and_its_spread_that_of_the_rounds() -> None:
    found = ratio({1: 1.0, 2: 2.0, 3: 9.0}, {1: 2.0, 2: 10.0, 3: 10.0})
    assert found is not None
    assert (found.value, found.low, found.high) == (2.0 / 10.0, 0.2, 0.9)
    assert str(found) == "0.20 (0.20 to 0.90)"


def test_rounds_that_only_one_side_has_do_not_count() -> None:
    found = ratio({1: 1.0, 2: 50.0}, {1: 2.0, 3: 1.0})
    assert found is not None
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert ratio({1: 1.0}, {2: 1.0}) is None
    assert difference({1: 1.0}, {2: 1.0}) is None


def test_a_difference_is_that_of_medians() -> None:
    found = difference({1: 7.0, 2: 8.0, 3: 20.0}, {1: 3.0, 2: 5.0, 3: 9.0})
    assert found is not None
    assert (found.value, found.low, found.high) == (3.0, 3.0, 11.0)


def test_a_percentile_is_the_nearest_rank() -> None:
    values = [*range(1, 101)]
    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.5) == 50
    assert percentile([7], 0.99) == 7
    assert percentile([3, 1, 2], 0.5) == 2


def test_cpu_a_message_and_a_second() -> None:
    run = Run("ours", BEST, 1, 2_000_000, 0.5, 2.5)
    assert run.us == 0.25
    assert run.ms_a_second == 200.0


# --- gates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "at_least", "verdict"),
    [
        (0.3, False, "goal"), (0.4, False, "gate"), (0.41, False, "MISSED"), (0.41, True, "goal"),
        (0.35, True, "gate"), (0.2, True, "MISSED"), (None, False, "not run"),
    ],
)  # fmt: skip
def test_a_verdict_is_the_best_that_is_met(value: float | None, at_least: bool, verdict: str) -> None:
    bounds = (0.3, 0.4) if at_least else (0.4, 0.3)
    assert Gate("what", value, *bounds, at_least=at_least).verdict == verdict


def test_a_gate_that_was_not_measured_says_why_and_shows_its_bounds() -> None:
    row = Gate("what", None, 0.4, None, at_least=False, note="no Go").row()
    assert row == "| what | not run: no Go | ≤ 0.4 x | - | not run |"


def gate_of(made: list[Gate], *words: str) -> Gate:
    [found] = [gate for gate in made if all(word in gate.what for word in words)]
    return found


@pytest.mark.parametrize(
    ("words", "gate", "goal"),
    [
        (("100 B, v1: ", "Scala", "best"), 1 / 2.5, 1 / 3),
        (("100 B, v2: ", "Java", "best"), 1 / 2, 1 / 2.5),
        (("100 B, v2: ", "confluent with CRC", "ours"), 1 / 2, 1 / 4),
        (("100 B, v1: ", "franz-go", "best"), 1 / 1.25, 1 / 1.7),
        (("100 B, v2 `batches()`", "Scala", "best"), 1 / 7, 1 / 10),
        (("1 KB, v2: ", "Scala", "best"), 1 / 3, 1 / 5),
        (("1 KB, v2: ", "Java", "best"), 1 / 2.5, None),
        (("1 KB, v2: ", "confluent with CRC", "best"), 1 / 1.3, None),
        (("100 B, v2, snappy: ", "Scala", "best"), 1 / 1.7, 1 / 2.2),
        (("100 B, v2, lz4: ", "Java", "best"), 1 / 1.7, 1 / 2.2),
        (("100 B, v2, zstd: ", "Java", "best"), 1 / 1.7, 1 / 2.2),
        (("100 B, v2, gzip: ", "Java", "best"), 1 / 1.3, None),
        (("100 B, v2, gzip with `[fast]`", "Scala", "best"), 1 / 1.7, None),
        (("1 to 5 records a batch: ", "Scala", "best"), 1 / 1.5, 1 / 2),
        (("1 to 5 records a batch, lz4: ", "Java", "best"), 1.0, None),
        (("tail, 64 partitions, 1,000", "CPU", "Scala"), 1.0, None),
        (("tail, 512 partitions, 50,000", "CPU", "Java"), 1.2, None),
        (("tail, 64 partitions, 50,000", "p99", "Java"), 5.0, None),
        (("100 B, v2, TLS: ", "Java", "best"), 1 / 1.5, None),
        (("100 B, v2, poll `poll()`", "Java", "best"), 1 / 2, None),
        (("100 B, v2, poll `poll()`", "Java", "ours"), 1 / 1.3, None),
        (("100 B, v2, poll `poll()`", "Java", "lists of 500"), 1 / 1.3, None),
        (("100 B, v2, poll `poll()`", "confluent with CRC", "best"), 1 / 2, None),
        (("100 B, v2, poll `poll()`", "confluent with CRC", "ours"), 1 / 1.3, None),
        (("100 B, v1 without extensions", "the commit before", "best"), 1.0, None),
        (("100 B, v2 without extensions", "without crc32c", "best"), 1 / 2, None),
        (("100 B, v2 without extensions", "with crc32c", "best"), 1.2, None),
        (("Spark",), 1.05, 1.0),
    ],
)
def test_the_gates_are_those_that_were_set(words: tuple[str, ...], gate: float, goal: float | None) -> None:
    found = gate_of(stream_gates.gates(made_up()), *words)
    assert (found.gate, found.goal) == (gate, goal)
    assert found.value is not None
    assert not found.at_least


def test_a_gate_compares_like_with_like() -> None:
    results = made_up()
    cell = results.cell("100B-v2")
    assert cell is not None
    cell.runs = [replace(run, cpu_s=run.cpu_s * 3) if run.settings == AS_OURS and run.peer == "java" else run
                 for run in cell.runs]  # fmt: skip
    made = stream_gates.gates(results)
    expected = cost_of("ours") / cost_of("java")
    assert gate_of(made, "100 B, v2: ", "Java", "best").value == pytest.approx(expected)
    assert gate_of(made, "100 B, v2: ", "Java", "ours").value == pytest.approx(expected / 3)


def test_latency_is_compared_by_difference() -> None:
    found = gate_of(stream_gates.gates(made_up()), "tail, 64 partitions, 1,000", "p99", "Scala")
    assert found.value == pytest.approx(cost_of("ours") - cost_of("scala"))
    assert found.unit == "ms"


def test_a_peer_that_could_not_run_is_named_in_its_gate() -> None:
    found = gate_of(stream_gates.gates(made_up(left_out=("java", BEST))), "100 B, v2: ", "Java", "best")
    assert found.value is None
    assert found.note == "java: a | reason"


def test_gates_of_cells_that_were_not_measured_are_there() -> None:
    results = made_up(cells=("lz4",))
    assert gate_of(stream_gates.gates(results), "100B-v1: ", "Java", "best").note == "the cell was not measured"
    assert {gate.what.partition(":")[0] for gate in stream_gates.gates(results, ("lz4",))} == {
        "100 B, v2, lz4", "Spark, 100B noop",
    }  # fmt: skip


def test_without_figures_of_spark_the_gate_says_how_to_get_them() -> None:
    results = made_up()
    results.spark = []
    assert "bench/spark.py --before" in gate_of(stream_gates.gates(results), "Spark").note


# --- cells ----------------------------------------------------------------------------------------------------------


def test_every_gate_has_both_sides_in_its_cell() -> None:
    for rule in stream_gates.RULES:
        for peer in (rule.peer, rule.other):
            if peer not in CELLS[rule.cell].cannot:
                columns = (BEST, AS_OURS) if rule.column is None else (rule.column,)
                assert {(peer, column) for column in columns} <= set(CELLS[rule.cell].columns)


def test_every_peer_of_a_cell_has_those_settings() -> None:
    for cell in CELLS.values():
        assert all(column in stream_peers.PEER_TABLE[peer].columns for peer, column in cell.columns)
    assert {peer for cell in CELLS.values() for peer, _ in cell.columns} == set(stream_peers.PEER_TABLE)


def test_a_look_reads_with_the_best_settings_alone() -> None:
    assert {column for _, column in columns_of(CELLS["100B-v2"], is_quick=True)} == {BEST}
    assert columns_of(CELLS["100B-v2"], is_quick=False) == CELLS["100B-v2"].columns
    assert columns_of(CELLS["tail-64-1k"], is_quick=True) == CELLS["tail-64-1k"].columns


# --- the JSON file --------------------------------------------------------------------------------------------------


def as_json(results: Results) -> str:
    return results.to_json([stream_gates.as_dict(gate) for gate in stream_gates.gates(results)])


def test_what_is_saved_is_read_back() -> None:
    results = made_up(left_out=("java", BEST))
    assert Results.from_json(as_json(results)) == results


def test_the_schema_has_every_field_and_no_other() -> None:
    """Each row of the page stands for something in the file."""
    data = json.loads(as_json(made_up(left_out=("java", BEST))))
    assert problems(data) == []
    for row in FIELDS:
        places = [data]
        *path, name = row.path.split(".")
        for word in path:
            places = [each for place in places for each in _elements(place, word)]
        bare = name.removesuffix("[]").removesuffix("{}")
        assert places, f"nothing in the file is {row.path}"
        assert all(bare in place for place in places), f"{row.path} is not in the file"


def _elements(place: dict[str, Any], word: str) -> list[Any]:
    if word.endswith("[]"):
        return list(place[word[:-2]])
    if word.endswith("{}"):
        return list(place[word[:-2]].values())
    return [place[word]]


def _set(data: dict[str, Any], path: list[str | int], value: object) -> None:
    place: Any = data
    for word in path[:-1]:
        place = place[word]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value


def test_the_parts_of_a_run_are_joined() -> None:
    first, second = made_up(cells=("100B-v1", "tls")), made_up(cells=("1KB-v2",))
    first.cells[1].runs.clear()  # it was interrupted
    second.load_at_start = 0.4
    whole = joined([first, second])
    assert [cell.name for cell in whole.cells] == ["100B-v1", "1KB-v2"]
    assert (whole.load_at_start, whole.seconds) == (0.4, 10_000.0)


@pytest.mark.parametrize(("name", "value"), [("before", "another"), ("rounds", 4), ("machine", {})])
def test_parts_under_other_conditions_are_refused(name: str, value: object) -> None:
    first, second = made_up(cells=("100B-v1",)), made_up(cells=("1KB-v2",))
    setattr(second, name, value)
    with pytest.raises(SystemExit, match=f"the files differ in {name}: they are not parts of one page"):
        joined([first, second])


def test_parts_with_other_settings_of_a_peer_are_refused() -> None:
    first, second = made_up(cells=("100B-v1",)), made_up(cells=("1KB-v2",))
    second.peers["java"]["settings"][BEST] = {"max.poll.records": "1"}
    with pytest.raises(SystemExit, match="differ in the settings of java"):
        joined([first, second])


def test_a_peer_may_have_other_settings_if_all_its_cells_were_measured_again() -> None:
    first, second = made_up(cells=("100B-v1", "poll")), made_up(cells=("poll",))
    second.peers["ours-poll"]["settings"][BEST] = {"max.poll.records": "1"}
    second.peers["ours-poll"]["difference"] = "another one"
    second.peers["ours-poll"]["versions"] = {"library": "2"}
    whole = joined([first, second])
    assert whole.peers["ours-poll"]["settings"][BEST] == {"max.poll.records": "1"}
    assert whole.peers["ours-poll"]["difference"] == "another one"
    assert whole.peers["ours-poll"]["versions"]["library"] == "2"
    assert [cell.name for cell in whole.cells] == ["100B-v1", "poll"]


def test_the_variables_of_a_peer_are_settings_of_each_column_and_reach_its_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = stream_peers.PEER_TABLE["no-consumer"]
    assert row.environment == stream_peers.KEPT_MEMORY
    settings = streams.new_results(streams.parsed([])).peers["no-consumer"]["settings"]
    assert settings == {name: {**column, **stream_peers.KEPT_MEMORY} for name, column in row.columns.items()}
    started = []
    monkeypatch.setattr(streams, "PeerProcess", lambda *given: started.append(given))
    start = stream_peers.Start(tmp_path / "settings", tmp_path, None)
    streams._start("no-consumer", BEST, stream_peers.Cluster("b:1", "z:1"), start)
    [(_, command, _)] = started
    assert command.environment.items() > stream_peers.KEPT_MEMORY.items()


def test_a_cell_that_was_measured_again_replaces_the_earlier_one_and_has_its_commit(
    written: Callable[[Results], Path],
) -> None:
    first, second = made_up(cells=("100B-v1", "lz4")), made_up(cells=("100B-v1", "zstd"))
    second.commit = "later"
    for cell in second.cells:
        cell.commit = "later"
    whole = joined([first, second])
    assert [(cell.name, cell.commit == "later") for cell in whole.cells] == [
        ("100B-v1", True),
        ("lz4", False),
        ("zstd", True),
    ]
    assert "Commit later: 100 B, v1; 100 B, v2, zstd." in written(whole).read_text("utf-8")


@pytest.mark.parametrize(
    ("path", "value", "wrong"),
    [
        (["schema"], 1, "schema 2"),
        (["rounds"], KeyError, "rounds is missing"),
        (["rounds"], "5", "rounds is str, not integer"),
        (["is_quick"], 1, "is_quick is int, not boolean"),
        (["more"], 1, "more is not known"),
        (["cells", 0, "runs", 2, "cpu_s"], None, "cells[].runs[].cpu_s is NoneType, not number"),
        (["cells", 0, "runs", 2, "cpu_s"], KeyError, "cells[].runs[].cpu_s is missing"),
        (["cells", 0, "more"], 1, "cells[].more is not known"),
        (["cells", 1, "not_run"], [], "cells[].not_run is list, not object"),
        (["peers", "java", "title"], KeyError, "peers{}.title is missing"),
        (["peers", "java", "settings"], "x", "peers{}.settings is str, not object"),
        (["gates", 3, "verdict"], KeyError, "gates[].verdict is missing"),
    ],
)
def test_a_file_of_another_form_is_refused(path: list[str | int], value: object, wrong: str) -> None:
    data = json.loads(as_json(made_up()))
    _set(data, path, value)
    with pytest.raises(ValueError) as refused:
        Results.from_json(json.dumps(data))
    assert wrong in str(refused.value)


def test_gates_of_spark_come_without_their_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "spark.json"
    gate = Gate("Spark", 1.0, 1.05, 1.0, at_least=False)
    file.write_text(json.dumps({"gates": [stream_gates.as_dict(gate)]}))
    [row] = streams.spark_gates(str(file))
    assert Gate(**row) == gate
    file.write_text("{}")
    with pytest.raises(Exception, match=r"not a file of bench/spark.py"):
        streams.spark_gates(str(file))


# --- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Results], Path]:
    def write(results: Results) -> Path:
        monkeypatch.setattr(stream_page, "FOLDER", tmp_path)
        monkeypatch.setattr(stream_page, "PAGE", tmp_path / "speed.md")
        stream_page.write(results)
        return tmp_path / "speed.md"

    return write


def test_the_page_obeys_the_rules_of_pages(written: Callable[[Results], Path]) -> None:
    page = written(made_up(left_out=("java", BEST)))
    test_docs.test_every_file_and_test_that_a_page_names_exists(page)
    test_docs.test_every_command_that_a_page_shows_is_known(page)
    test_docs.test_every_setting_that_a_page_names_is_known(page)
    text = page.read_text("utf-8")
    for picture in page.parent.glob("*.svg"):
        assert f"]({picture.name})" in text
    assert len(list(page.parent.glob("*.svg"))) == 4


def test_the_page_has_every_cell_peer_gate_field_and_reason(written: Callable[[Results], Path]) -> None:
    results = made_up(left_out=("java", BEST))
    text = written(results).read_text("utf-8")
    for cell in CELLS.values():
        assert f"| {cell.title} |" in text
    for peer in stream_peers.PEER_TABLE.values():
        assert f"| {peer.title} |" in text
    for gate in stream_gates.gates(results):
        assert gate.row() in text
    for row in FIELDS:
        assert f"| `{row.path}` |" in text
    assert "| 100 B, v2 | Java KafkaConsumer 3.9.1, best | a \\| reason |" in text
    assert "| 100 B, v2, TLS | Scala consumer 1.1.1, ours | the Scala consumer has no TLS |" in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head(written: Callable[[Results], Path]) -> None:
    head = 0
    for line in written(made_up(left_out=("java", BEST))).read_text("utf-8").splitlines():
        if not line.startswith("|"):
            head = 0
            continue
        cells = line.replace("\\|", "").count("|")
        head = head or cells
        assert cells == head, line


def test_costs_are_medians_and_ratios_have_their_spread(written: Callable[[Results], Path]) -> None:
    text = written(made_up(cells=("20B-v2",))).read_text("utf-8")
    ours = cost_of("ours") * 1.03
    assert f"| 20 B, v2 | {ours:.3f} |" in text
    expected = cost_of("ours") / cost_of("scala")
    assert f"÷ Scala consumer 1.1.1 | {expected:.2f} ({expected:.2f} to {expected:.2f}) |" in text


def test_poll_is_compared_with_java_and_with_what_it_needs_at_least(written: Callable[[Results], Path]) -> None:
    text = written(made_up(cells=("poll",))).read_text("utf-8")
    for names in (("ours-poll", "java"), ("ours-poll", "no-consumer"), ("no-consumer", "java")):
        expected = cost_of(names[0]) / cost_of(names[1])
        titles = " ÷ ".join(stream_peers.PEER_TABLE[name].title for name in names)
        assert f"| 100 B, v2, poll | {titles} | {expected:.2f} (" in text


def test_the_page_of_a_look_says_so_and_has_no_second_column(written: Callable[[Results], Path]) -> None:
    results = made_up(cells=("lz4",))
    results.is_quick = True
    [cell] = results.cells
    cell.runs = [run for run in cell.runs if run.settings == BEST]
    text = written(results).read_text("utf-8")
    assert "a quick run" in text
    assert "Settings of ours for all" not in text
    assert "settings of ours | " not in text.partition("## Gates")[2].partition("## ")[0]


def test_lines_for_the_console_name_everybody() -> None:
    results = made_up(left_out=("java", BEST), cells=("100B-v2", "tail-64-1k"))
    lines = stream_page.lines_of(results.cells[0], results.peers)
    assert len(lines) == len(CELLS["100B-v2"].columns)
    assert "  Java KafkaConsumer 3.9.1, settings best: not run: a | reason" in lines
    assert "p99" in stream_page.lines_of(results.cells[1], results.peers)[0]


# --- plots ----------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def test_a_plot_has_its_lines_in_order_and_upright() -> None:
    lines = [plots.Line("a < b", [(1000, 2.0), (10, 0.2)]), plots.Line("c", [(100, 20.0)])]
    root = ElementTree.fromstring(plots.svg(plots.Plot("title & more", "x", "y", lines)))
    [first, second] = root.findall(f"{SVG}polyline")
    (x1, y1), (x2, y2) = [tuple(map(float, point.split(","))) for point in first.attrib["points"].split()]
    assert x1 < x2
    assert y1 > y2, "more is higher"
    [[x3, y3]] = [tuple(map(float, point.split(","))) for point in second.attrib["points"].split()]
    assert x3 == pytest.approx((x1 + x2) / 2, abs=0.1), "the axis is logarithmic"
    assert y2 - y3 == pytest.approx(y1 - y2, abs=0.1)
    assert plots.LEFT < x1 < x2 < plots.WIDTH - plots.RIGHT
    assert plots.TOP < y3 < y1 < plots.HEIGHT - plots.BOTTOM
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"title & more", "a < b", "c", "x", "y", "10", "100", "1000"} <= set(texts)


def test_a_plot_of_nothing_or_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="the plot has no points"):
        plots.svg(plots.Plot("t", "x", "y", [plots.Line("a", [])]))
    with pytest.raises(ValueError, match="0 or less"):
        plots.svg(plots.Plot("t", "x", "y", [plots.Line("a", [(1, 0.0)])]))


def test_plots_are_made_of_cells_that_were_measured() -> None:
    assert set(stream_page.plots(made_up())) == {"size", "partitions", "rate-64", "rate-512"}
    assert set(stream_page.plots(made_up(cells=("100B-v2", "20B-v2", "tail-64-1k")))) == {"size"}
    sizes = stream_page.plots(made_up())["size"]
    assert [x for x, _ in sizes.lines[0].points] == [20, 100, 300, 1024, 4096]


# --- topics ---------------------------------------------------------------------------------------------------------


def test_text_with_numbers_shrinks_to_a_third() -> None:
    for is_compressible, most in ((True, 0.2), (False, 0.5)):
        plain, packed = (
            sum(len(batch.data) for batch in Shape(100, False, codec=codec, is_compressible=is_compressible).batches())
            for codec in (compression.NONE, compression.LZ4)
        )
        assert most / 2 < packed / plain < most


def test_small_batches_have_one_to_five_records() -> None:
    made = Shape(100, False, batch_records=(1, 5)).batches()
    assert {batch.records for batch in made} == {1, 2, 3, 4, 5}
    assert all(batch.value_bytes == 100 * batch.records for batch in made)
    assert len(list(iter_records(made[0].data))) == made[0].records


def test_headers_are_written() -> None:
    [first, *_] = Shape(100, False, has_headers=True).batches()
    assert next(iter_records(first.data)).headers == HEADERS


def test_keys_are_of_8_bytes_and_different() -> None:
    first, second, *_ = Shape(100, False).batches()
    keys = [record.key for batch in (first, second) for record in iter_records(batch.data)]
    assert len(set(keys)) == len(keys)
    assert {len(key or b"") for key in keys} == {8}


@pytest.mark.parametrize("codec", [compression.NONE, compression.SNAPPY])
@pytest.mark.parametrize("magic", [1, 2])
def test_what_is_on_disk_is_read_from_the_segment(tmp_path: Path, magic: int, codec: int) -> None:
    batches = [
        build_record_set([Record(n, 1, 0, b"k", b"v" * 50) for n in range(low, low + 7)], magic, codec)
        for low in range(0, 70, 7)
    ]
    data = b"".join(batches)
    (tmp_path / "00000000000000000000.log").write_bytes(data + batches[0][:-1])
    (tmp_path / "00000000000000000070.log").write_bytes(b"")
    found = on_disk(tmp_path)
    assert (found.magic, found.codec) == (magic, compression.CODEC_NAMES[codec])
    assert found.records_a_batch == (7 if magic == 2 else None)
    entries = 70 if (magic, codec) == (1, compression.NONE) else 10
    assert found.batch_bytes == pytest.approx(len(data) / entries)


def test_a_segment_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no complete batch"):
        on_disk(tmp_path)


def test_a_producer_stamps_at_most_a_thousand_records_a_second() -> None:
    assert tail_producer.plan(1_000) == (1, 1)
    burst, each = tail_producer.plan(50_000)
    assert burst == 25
    assert 50_000 / burst / each == 1_000


# --- peers ----------------------------------------------------------------------------------------------------------

FAKE = """
import sys
sys.path.insert(0, {folder!r})
import protocol

class Fake:
    def read(self, read):
        if read.group == "fails":
            raise RuntimeError("no such group")
        if read.group == "ends":
            sys.exit("it is over")
        if read.group == "hangs":
            protocol.threading.Event().wait()
        read.count = read.offsets = read.messages
    def tail(self, tail):
        import os, subprocess
        global left
        left = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)

if "refuses" in sys.argv:
    protocol.say({{"failed": "not here"}})
else:
    if "lies" in sys.argv:
        protocol.cpu_s = lambda: 1000.0
    print("a library says hello", flush=True)
    protocol.serve(Fake(), {{"version": "1"}})
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., PeerProcess]]:
    script = tmp_path / "fake.py"
    script.write_text(FAKE.format(folder=str(ROOT / "bench" / "peers")))
    made: list[PeerProcess] = []

    def start_(*words: str) -> PeerProcess:
        made.append(PeerProcess("fake", Command((sys.executable, str(script), *words)), tmp_path / "peer"))
        return made[-1]

    yield start_
    for process in made:
        process.close()


def test_a_peer_answers_and_goes_on_after_a_failure(start: Callable[..., PeerProcess]) -> None:
    process = start()
    assert process.about == {"version": "1"}
    with pytest.raises(PeerFailed, match="RuntimeError: no such group"):
        process.ask(("read", "t", "fails", 10, 1, 5), 100)
    answer = process.ask(("read", "t", "g", 10, 1, 5), 100)
    assert (answer["messages"], answer["window_messages"], answer["offsets"]) == (10, 10, 10)
    assert process.ask(("read", "t", "g", 10, 0, 5), 100)["offsets"] is None


def test_a_peer_that_ends_says_its_last_line(start: Callable[..., PeerProcess]) -> None:
    with pytest.raises(PeerFailed, match="it ended: it is over"):
        start().ask(("read", "t", "ends", 10, 1, 5), 100)


def test_a_peer_ends_with_its_input_also_in_the_middle_of_a_reading(start: Callable[..., PeerProcess]) -> None:
    process = start()
    with pytest.raises(PeerFailed, match="no answer within"):
        process.ask(("read", "t", "hangs", 10, 1, 5), 0.1)
    popen = process._popen
    assert popen.stdin is not None
    popen.stdin.close()
    assert popen.wait(100) == 0


def test_a_peer_that_refuses_to_start_says_why(start: Callable[..., PeerProcess]) -> None:
    with pytest.raises(PeerFailed, match="not here"):
        start("refuses")


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="no-such-program cannot be started"):
        PeerProcess("fake", Command(("/no-such-program",)), tmp_path / "peer")


def test_cpu_that_the_system_has_not_seen_is_refused(start: Callable[..., PeerProcess]) -> None:
    with pytest.raises(PeerFailed, match=r"it reports 1000.00 s of CPU"):
        start("lies").ask(("read", "t", "g", 10, 1, 5), 100)


def test_a_child_that_goes_on_is_refused(start: Callable[..., PeerProcess]) -> None:
    with pytest.raises(PeerFailed, match="processes whose CPU is not counted"):
        start().ask(("tail", "t", "g", 1, 1, 5), 100)


class Answers:
    """In the place of a ``PeerProcess``: answers as it is told, and notes in whose turn."""

    def __init__(self, name: str, turns: list[str], **changed: Any) -> None:
        self.about = {"version": "1"}
        self.is_closed = False
        self._name, self._turns, self._changed = name, turns, changed

    def ask(self, words: tuple[Any, ...], _: float) -> dict[str, Any]:
        assert words[0] == "read"
        is_start = words[1] == "start"
        self._turns.append(f"{self._name} start" if is_start else self._name)
        answer = {"messages": words[3], "offsets": 5, "bytes": 6, "window_cpu_s": 0.2 if is_start else 1.0,
                  "window_s": 2.0}  # fmt: skip
        return answer if is_start else {**answer, **self._changed}

    def close(self) -> None:
        self.is_closed = True


def turns_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **peers: dict[str, Any]) -> tuple[CellResult, list[str]]:
    """Two rounds of a cell with peers that answer like this."""
    order: list[str] = []
    made = {name: Answers(name, order, **changed) for name, changed in peers.items()}
    monkeypatch.setattr(streams, "_start", lambda peer, *_: made[peer])
    result = CellResult("lz4", "lz4", "shape", 100, 4, 1000, 0, 0, {})
    turns = streams.Turns(result, 2)
    cluster = stream_peers.Cluster("b:1", "z:1")
    turns.start(replace(CELLS["lz4"], cannot={"scala": "cannot"}), tuple((name, BEST) for name in [*peers, "scala"]),
                cluster, None, tmp_path)  # fmt: skip
    turns.read(streams.Topics(Filled("t", 4, 1000, 5, 6), Filled("start", 4, 200, 5, 6)))
    turns.close()
    assert all(each.is_closed for each in made.values())
    return result, order


def test_peers_take_turns_and_the_first_reading_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, order = turns_of(monkeypatch, tmp_path, ours={}, confluent={})
    assert [who for who in order if not who.endswith("start")] == [
        "ours", "confluent", "confluent", "ours", "ours", "confluent",
    ]  # fmt: skip
    assert [run.round for run in result.of("ours", BEST)] == [1, 2]
    assert result.not_run == {"scala best": "cannot"}


def test_joining_and_leaving_are_subtracted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reading of 200 messages took .2 s, one of 1000 took 1 s."""
    result, order = turns_of(monkeypatch, tmp_path, ours={})
    assert order == ["ours", "ours start", "ours", "ours", "ours start"]
    first, _ = result.of("ours", BEST)
    assert (first.messages, first.cpu_s, first.start_s, first.wall_s) == (800, 0.8, 0.2, 2.0)
    assert first.us == 1000.0


def test_a_jvm_reads_thirty_millions_before_it_counts() -> None:
    assert streams._warm_readings("java", 6_000_000) == 5
    assert streams._warm_readings("java", 20_000_000) == 2
    assert streams._warm_readings("scala", 10_000) == streams.WARM_READINGS_MAX
    assert streams._warm_readings("franz-go", 1_000) == 1


@pytest.mark.parametrize("changed", [{"messages": 999}, {"offsets": 4}, {"bytes": 7}])
def test_a_peer_that_read_other_records_is_left_out(
    changed: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, _ = turns_of(monkeypatch, tmp_path, ours={}, confluent=changed)
    assert "it read other records" in result.not_run["confluent best"]
    assert len(result.of("ours", BEST)) == 2


def test_sums_that_were_not_made_are_not_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = turns_of(monkeypatch, tmp_path, ours={"offsets": None, "bytes": None})
    assert len(result.of("ours", BEST)) == 2


def test_a_reading_that_costs_no_more_than_its_start_is_no_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, _ = turns_of(monkeypatch, tmp_path, ours={"window_cpu_s": 0.2})
    assert "--scale" in result.not_run["ours best"]
    assert result.runs == []


def test_a_failure_in_a_later_round_takes_the_earlier_ones_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def fails_the_third_time(self: Answers, words: tuple[object, ...], timeout_s: float) -> dict[str, Any]:
        asked.append(words)
        if len(asked) == 3:
            raise PeerFailed("it broke")
        return ask(self, words, timeout_s)

    ask = Answers.ask
    monkeypatch.setattr(Answers, "ask", fails_the_third_time)
    result, _ = turns_of(monkeypatch, tmp_path, ours={})
    assert result.runs == []
    assert result.not_run["ours best"] == "it broke"


class AtTail(Answers):
    """Answers with these numbers of messages in windows of 2 s."""

    def __init__(self, *messages: int) -> None:
        super().__init__("ours", [])
        self._messages = list(messages)

    def ask(self, words: tuple[Any, ...], _: float) -> dict[str, Any]:
        assert words[0] == "tail"
        return {"window_messages": self._messages.pop(0), "window_s": 2.0, "window_cpu_s": 0.5,
                "latencies_us": [1000 * n for n in range(1, 101)]}  # fmt: skip


def follow(peer: AtTail, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[streams.Turns, CellResult]:
    """One round of a tail with 1,000 records a second."""
    monkeypatch.setattr(streams, "_start", lambda *_: peer)
    result = CellResult("tail-64-1k", "tail", "shape", 100, 64, 0, 0, 1000, {})
    turns = streams.Turns(result, 1)
    turns.start(CELLS["tail-64-1k"], (("ours", AS_OURS),), stream_peers.Cluster("b:1", "z:1"), None, tmp_path)
    turns.follow("tail-64-1k", 1000)
    return turns, result


def test_a_reading_at_the_tail_has_cpu_and_latency(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, result = follow(AtTail(2000, 1990), monkeypatch, tmp_path)
    [run] = result.runs
    assert (run.messages, run.ms_a_second, run.latencies_ms) == (1990, 250.0, (50.0, 99.0))


def test_a_consumer_that_does_not_keep_up_is_asked_once_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, result = follow(AtTail(2000, 1800, 2000), monkeypatch, tmp_path)
    assert [run.messages for run in result.runs] == [2000]
    (tmp_path / "again").mkdir()
    _, result = follow(AtTail(2000, 1800, 1700), monkeypatch, tmp_path / "again")
    assert result.not_run == {"ours ours": "it read 900, then 850 records/s of 1000"}
    assert result.runs == []


def test_beside_a_producer_that_lags_no_figure_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = '{"sent": 9, "acked": %d, "failed": %d, "seconds": 10.0}'
    assert streams.producer_trouble([line % (1, 0), line % (10_000, 0)], 1000) == ""
    assert "990 records/s of 1000, and 1 failed" in streams.producer_trouble([line % (9_900, 1)], 1000)
    why = streams.producer_trouble([line % (9_000, 0)], 1000)
    assert why == "the producer sent 900 records/s of 1000, and 0 failed"
    assert streams.producer_trouble([], 1000) == "the producer sent nothing"
    turns, result = follow(AtTail(2000, 2000), monkeypatch, tmp_path)
    turns.leave_out_all(why)
    assert result.runs == []
    assert result.not_run == {"ours ours": why}


def test_the_tail_begins_its_window_after_it_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(protocol.time, "time_ns", lambda: int(now_s * 1e9))
    tail = protocol.Tail(["t", "g", "3", "8", "60"])
    counts = {1000.0: 1, 1002.9: 50, 1003.0: 60, 1010.9: 500, 1011.0: 510}
    ends = []
    for now_s, count in counts.items():
        sent_us = int(now_s * 1e6) - 2_500
        ends.append(tail.stamped(protocol.STAMP.pack(sent_us) + b"x", count))
    assert ends == [False] * 4 + [True]
    assert tail.answer()["latencies_us"] == [2500] * 3
    assert tail.answer()["window_messages"] == 510 - 60


def test_our_peer_reads_as_many_as_it_is_told_and_sums_in_the_first_reading() -> None:
    import ours

    messages = [SimpleNamespace(key=b"k" * 8, value=b"v" * 10, offset=n) for n in range(50)]
    for check, sums in ((1, (sum(range(30)), 300)), (0, (None, None))):
        rest = iter(messages)
        read = protocol.Read(["t", "g", "30", str(check), "60"])
        ours.Ours({}).consume(rest, read)  # type: ignore[arg-type]
        answer = read.answer()
        assert answer["messages"] == 30
        assert (answer["offsets"], answer["bytes"]) == sums
        assert next(rest).offset == 30, "not one more was taken"


# --- checkouts ------------------------------------------------------------------------------------------------------


def test_a_second_checkout_needs_a_python_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="it contains no zkconsumer"):
        stream_peers.checkout_of(tmp_path)
    root = tmp_path / "repo"
    (root / "zkconsumer").mkdir(parents=True)
    (root / "zkconsumer" / "__init__.py").touch()
    with pytest.raises(SystemExit, match="it has no virtual environment"):
        stream_peers.checkout_of(root)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    assert stream_peers.checkout_of(root) == stream_peers.Checkout(root, str(python))


def test_the_commit_says_whether_files_were_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    assert stream_peers.commit_of(tmp_path) == "unknown"
    git("init", "-q")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one")
    clean = stream_peers.commit_of(tmp_path)
    assert len(clean) == 12
    (tmp_path / "a").write_text("2")
    assert stream_peers.commit_of(tmp_path) == f"{clean}+"


def test_what_cannot_be_built_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stream_peers.shutil, "which", lambda *_, **__: None)
    with pytest.raises(stream_peers.NotRun, match="PATH has no 'go'"):
        stream_peers.franz_program()
    monkeypatch.undo()
    monkeypatch.setenv("ZKCONSUMER_CACHE", str(tmp_path))
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho first >&2\necho 'no network' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setattr(stream_peers.shutil, "which", lambda *_, **__: str(go))
    with pytest.raises(stream_peers.NotRun, match="did not build the peer: no network"):
        stream_peers.franz_program()


def test_the_command_line_knows_cells_and_peers() -> None:
    assert streams.parsed([]).cells == list(CELLS)
    quick = streams.parsed(["--quick"])
    assert (quick.rounds, quick.scale) == (streams.ROUNDS_QUICK, streams.SCALE_QUICK)
    assert quick.cells == [name for name, cell in CELLS.items() if cell.is_quick]
    assert streams.parsed(["--cells", "lz4", "--rounds", "7"]).rounds == 7
    with pytest.raises(SystemExit):
        streams.parsed(["--cells", "no-such-cell"])
