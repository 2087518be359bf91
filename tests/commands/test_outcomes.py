"""Every command in every situation ends as it is recorded, and shows nothing that is unknown as empty.

``python -m tests.commands.record_outcomes`` records it again; the page ``migration_docs/reference/command-outcomes.md``
follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.command_matrix import ALL_WELL, COMMANDS, cells, kept
from tests.commands.in_memory_cluster import SITUATIONS, CommandWorld, Outcome, command_world
from tests.commands.record_outcomes import FILE
from tests.commands.unknown_values_checker import wrongs
from tests.unit.cli.test_cli_options import COMMANDS as EVERY_COMMAND
from tests.unit.cli.test_cli_options import WITHOUT_CLUSTER

RECORDED: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandWorld]:
    with command_world(tmp_path_factory.mktemp("commands")) as made:
        made.read_to_the_end()
        yield made


def test_every_command_on_a_cluster_is_in_the_table() -> None:
    called = {name for name in EVERY_COMMAND for one in COMMANDS.values() if one.words.startswith(name)}
    # The first asks ZooKeeper alone; the second serves until a signal, and shows what is unknown on its page.
    assert EVERY_COMMAND.keys() - WITHOUT_CLUSTER - called == {"migrate restore", "web"}
    assert {(name, situation) for name, row in RECORDED.items() for situation in row} == set(cells())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_as_recorded_and_calls_nothing_empty_that_it_does_not_know(
    servers: CommandWorld, name: str
) -> None:
    command = COMMANDS[name]
    well = command.call(servers, ALL_WELL)
    well_as_json = command.call(servers, ALL_WELL, as_json=True) if command.is_json else None
    for situation in SITUATIONS:
        if not command.can_be_in(situation):
            continue
        seen = command.call(servers, situation)
        as_json = command.call(servers, situation, as_json=True) if command.is_json else None
        assert list(wrongs(situation, well, seen)) == [], situation
        if as_json is not None and well_as_json is not None:
            assert list(wrongs(situation, well_as_json, as_json)) == [], situation
            assert as_json.exit_code == seen.exit_code, situation
        assert seen.exit_code in (0, 3) or seen.errors, f"{situation}: no error says why\n{seen.stderr}"
        recorded, found = RECORDED[name][situation], kept(seen, as_json)
        # Which of two brokers is asked last is another one each time.
        assert _without_numbers(found) == _without_numbers(recorded), (
            f"{situation}: python -m tests.commands.record_outcomes"
        )


def _without_numbers(cell: object) -> str:
    return json.dumps(cell).replace("broker-0:9092", "broker").replace("broker-1:9092", "broker")


@pytest.mark.parametrize("migration_id", ["011483622397", "abcdefabcdef", "0a1b2c3d4e5f"])
def test_an_id_of_digits_or_letters_alone_is_an_id_too(servers: CommandWorld, migration_id: str) -> None:
    assert servers.plain(f"migration {migration_id} of group moving") == "migration ID of group moving"


# --- the judge ------------------------------------------------------------------------------------------------------

TABLE = "TOPIC  PARTITION  OFFSET  END  LAG\nclicks  0  4  10  6\n"


@pytest.mark.parametrize(
    ("well", "seen", "exit_code", "is_wrong"),
    [
        (TABLE, TABLE, 0, False),
        (TABLE, "TOPIC  PARTITION  OFFSET  END  LAG\nclicks  0  4  ?  ?\n", 1, False),
        (TABLE, "TOPIC  PARTITION  OFFSET  END  LAG\nclicks  0  4  ?  ?\n", 0, True),
        (TABLE, "TOPIC  PARTITION  OFFSET  END  LAG\nclicks  0  4  -  0\n", 1, True),
        (TABLE, "", 1, False),
        (TABLE, "", 0, True),
        ("placeholder: member\n", "placeholder: none\n", 1, True),
        ("placeholder: member\n", "placeholder: not known: nobody answers\n", 1, False),
        ('{"lag": 5}', '{"lag": 0}', 1, True),
        ('{"lag": 5}', '{"lag": null}', 1, False),
        ('{"rows": [{"end": 5}]}', '{"rows": []}', 1, True),
        ('{"rows": [{"end": 5}]}', '{"rows": null}', 1, False),
    ],
)
def test_the_checker_finds_unknown_values_shown_as_empty(well: str, seen: str, exit_code: int, is_wrong: bool) -> None:
    error = "zkconsumer: nobody answers\n" if exit_code else ""
    found = list(wrongs("no broker", Outcome(0, well, ""), Outcome(exit_code, seen, error)))
    assert bool(found) == is_wrong, found


def test_the_record_is_of_this_folder() -> None:
    assert Path(__file__).resolve().parents[1] / "data" / "command-outcomes.json" == FILE
