"""What all commands have in common: how they are found, and what they say when they are called wrongly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bridge.migration.errors import PartiallyDoneError, StalePlanError, VerificationError, WaitTimeoutError
from zkconsumer.cli import main
from zkconsumer.cli.console import print_error
from zkconsumer.cli.main import RootCommand
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError, ZkConsumerError


@pytest.mark.parametrize(
    ("words", "near"),
    [("grups", "groups"), ("groups docter", "doctor"), ("offsets exprt", "export"), ("sandbox dwn", "down")],
)
def test_a_slip_of_the_pen_is_told_the_nearest_command(words: str, near: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2
    assert f"Did you mean {near!r}?" in done.output


def test_what_is_near_to_nothing_is_only_refused() -> None:
    done = CliRunner().invoke(main, ["groups", "xyzzy"])
    assert done.exit_code == 2
    assert "There is no command 'xyzzy'." in done.output
    assert "Did you mean" not in done.output


@pytest.mark.parametrize("words", ["groups delete", "groups doctor", "offsets import", "offsets set", "offsets delete"])
def test_a_command_that_is_loaded_later_tells_its_help(words: str) -> None:
    done = CliRunner().invoke(main, [*words.split(), "--help"])
    assert done.exit_code == 0
    assert done.output.startswith("Usage:")


@pytest.mark.parametrize(
    "words", ["consume --group g --topic t", "perf --topic t --messages 1", "groups list", "lag g", "offsets export g"]
)
def test_without_an_address_every_command_says_how_to_give_it(words: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2
    assert re.search(r"give the address of (ZooKeeper|the cluster): --zookeeper HOST:PORT\[/CHROOT\]", done.stderr)
    assert "ZKCONSUMER_ZOOKEEPER" in done.stderr
    assert "--config FILE" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(UnavailableError, 1), (UsageError, 2), (PreconditionFailed, 4), (StalePlanError, 4), (VerificationError, 5),
     (PartiallyDoneError, 6), (WaitTimeoutError, 7)],
)  # fmt: skip
def test_a_command_ends_with_the_exit_code_of_its_error(error: type[ZkConsumerError], code: int) -> None:
    class Fails(RootCommand):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return ["fails"]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
            def fail() -> None:
                raise error("that is how it is")

            return click.Command("fails", callback=fail)

    done = CliRunner().invoke(Fails("zkconsumer"), ["fails"])
    assert (done.exit_code, done.stderr) == (code, "zkconsumer: that is how it is\n")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--nosuch", "No such option"),
        ("groups list --nosuch", "No such option"),
        ("groups describe", "Missing argument 'GROUP', or --group."),
        ("grups", "There is no command 'grups'. Did you mean 'groups'?"),
        ("sandbox up --chroot x", "Invalid value for --chroot: 'x' is not a path like /kafka"),
        ("check /no/such/file", "Invalid value for 'HISTORY...': File '/no/such/file' does not exist."),
    ],
)
def test_a_wrong_call_has_the_same_prefix_as_every_error(words: str, error: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    usage, hint, blank, last = done.stderr.splitlines()
    assert usage.startswith("Usage: ")
    assert hint.endswith("--help' for help.")
    assert blank == ""
    assert last.startswith(f"zkconsumer: {error}")


def test_an_error_may_have_lines_and_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("two nodes:\n  /consumers/\x1b[2J")
    assert capsys.readouterr().err == "zkconsumer: two nodes:\n  /consumers/?[2J\n"


PROGRAM = "from zkconsumer.cli.console import log_to_console as c; import logging; c(); {}"


def test_log_lines_in_the_console_have_time_level_and_logger() -> None:
    text = (
        'logging.getLogger("zkconsumer.member").warning("brokers-unreachable reason=x"); '
        'logging.getLogger("k").info("y")'
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(text)], capture_output=True, text=True, check=True, timeout=60
    )
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING zkconsumer\.member: brokers-unreachable reason=x\n", done.stderr
    )


def test_no_command_sets_the_console_up_in_its_own_way() -> None:
    """One format for all of them; programs that stand for a user's are no commands."""
    root = Path(__file__).resolve().parents[3]
    files = [*(root / "zkconsumer" / "cli").glob("*.py"), *(root / "bridge" / "commands").glob("*.py")]
    found = [file.name for file in files if re.search(r"basicConfig|\"Error: ", file.read_text("utf-8"))]
    assert found == ["console.py"]
