"""``zkconsumer assign``, in this process and as the real command; and what the command line does with errors."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import zkconsumer
from zkconsumer.cli import main
from zkconsumer.cli.plugin_commands import PLUGIN_ENTRY_POINTS
from zkconsumer.errors import BrokerUnreachable, ConnectorClosed, InvalidConfigException
from zkconsumer.wire.compression import implementations

# The module, which the function of the same name hides in its package.
cli = sys.modules["zkconsumer.cli.main"]

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "assignment-vectors.json").read_text())
LINES = "".join(json.dumps(case) + "\n" for case in VECTORS)
SETUP = Path(__file__).parents[3] / "setup.py"
CALLS = {
    "range": ["--strategy", "range"],
    "roundrobin_strict": ["--strategy", "roundrobin", "--compatibility", "0.8.2"],
    "roundrobin_brackets": ["--strategy", "roundrobin", "--compatibility", "0.10.2"],
    "roundrobin_dash": ["--strategy", "roundrobin", "--compatibility", "1.0"],
}
SCRIPT = str(Path(sys.executable).parent / "zkconsumer")


def run(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def check_against_vectors(output: str, key: str) -> None:
    answers = [json.loads(line) for line in output.splitlines()]
    assert [answer["name"] for answer in answers] == [case["name"] for case in VECTORS]
    for answer, case in zip(answers, VECTORS, strict=True):
        if case[key] == "refused":
            assert set(answer) == {"name", "error"}
            assert answer["error"].startswith("Round-robin assignment is allowed only if all consumers")
        else:
            expected = {tp: thread for share in case[key].values() for tp, thread in share.items()}
            assert answer == {"name": case["name"], "assignment": expected}


# --- the cases of the original ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", CALLS)
def test_all_cases_through_the_command(key: str) -> None:
    result = run("assign", *CALLS[key], stdin=LINES)
    assert result.exit_code == 0, result.stderr
    check_against_vectors(result.stdout, key)


FILTERED = {
    "name": "g",
    "members": {
        "g_a": {"white_list": {"cl.*, v": 1}},
        "g_b": {"black_list": {"clicks|__.*": 1}},
        "g_c": {"white_list": 1},
    },
    "partitions": {"clicks": [0, 1], "v": [0, 1], "white_list": [0, 1], "__consumer_offsets": [0]},
}


def test_members_may_have_filters() -> None:
    result = run("assign", stdin=json.dumps(FILTERED))
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["assignment"] == {
        "clicks/0": "g_a-0", "clicks/1": "g_a-0", "v/0": "g_a-0", "v/1": "g_b-0",
        "white_list/0": "g_b-0", "white_list/1": "g_c-0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("subscription", "words"),
    [
        ({"white_list": {}}, "a filter is one pattern"),
        ({"white_list": {"a": 1, "b": 1}}, "a filter is one pattern"),
        ({"white_list": {"a": 1}, "t": 1}, "a filter is one pattern"),
        ({"white_list": {"a": 0}}, "0 threads for 'a'"),
        ({"black_list": {"*": 1}}, "'*' without an expression before it"),
        ({"black_list": {"(a)\\1": 1}}, "at character 4"),
    ],
)
def test_a_filter_that_cannot_be_is_named(subscription: dict[str, Any], words: str) -> None:
    result = run("assign", stdin=json.dumps(FILTERED | {"members": {"g_a": subscription}}))
    assert result.exit_code == 2
    assert words in result.stderr


def test_all_cases_through_the_real_script_from_a_file(tmp_path: Path) -> None:
    groups = tmp_path / "groups.jsonl"
    groups.write_text(LINES)
    for key in ("range", "roundrobin_strict"):
        done = subprocess.run([SCRIPT, "assign", str(groups), *CALLS[key]], capture_output=True, text=True, check=True)
        check_against_vectors(done.stdout, key)
        assert done.stderr == ""


def test_partitions_come_out_in_the_order_of_their_numbers() -> None:
    line = {"name": "x", "members": {"g_a": {"t": 1, "s": 1}}, "partitions": {"t": [10, 9, 2], "s": [0]}}
    result = run("assign", stdin=json.dumps(line))
    assert list(json.loads(result.stdout)["assignment"]) == ["s/0", "t/2", "t/9", "t/10"]


def test_blank_lines_are_skipped_and_an_empty_group_has_an_empty_assignment() -> None:
    result = run("assign", "-", stdin='\n{"name": "x", "members": {}, "partitions": {"t": [0]}}\r\n\n')
    assert result.stdout == '{"name": "x", "assignment": {}}\n'


def test_members_that_see_a_tie_differently_are_refused_in_words() -> None:
    line = {
        "name": "x",
        "members": {"g_a": {"BB": 1, "Aa": 1}, "g_b": {"Aa": 1, "BB": 1}},
        "partitions": {"Aa": [0], "BB": [0]},
    }
    result = run("assign", *CALLS["roundrobin_strict"], stdin=json.dumps(line))
    assert result.exit_code == 0
    assert "both claim" in json.loads(result.stdout)["error"]
    assert "Aa, BB" in json.loads(result.stdout)["error"]


# --- bad input ----------------------------------------------------------------------------------------------------

GOOD = '{"name": "x", "members": {"g_a": {"t": 1}}, "partitions": {"t": [0]}}'


def members(value: Any) -> str:
    return json.dumps({"name": "x", "members": value, "partitions": {}})


def partitions(value: Any) -> str:
    return json.dumps({"name": "x", "members": {}, "partitions": value})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("9" * 10_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        (b"\xff", "is not UTF-8"),
        ('{"members": {}, "partitions": {}}', 'has no "name"'),
        ('{"name": 1, "members": {}, "partitions": {}}', '"name" is not a text'),
        ('{"name": "x", "partitions": {}}', 'has no "members"'),
        (members([]), '"members" is not an object'),
        (members({"g_a": 1}), "the member 'g_a' has no object"),
        (members({"g_a": {"t": 0}}), "has 0 threads for 't'"),
        (members({"g_a": {"t": "1"}}), "has '1' threads for 't'"),
        (members({"g_a": {"t": True}}), "has True threads for 't'"),
        (members({"g_a": {"t": 2**31 - 1}}), "it must be 1 to 100000"),
        (members({"g_a": {"t": 60_000, "s": 60_000}}), "120000 streams"),
        (members({"g_a": {"\ud800": 1}}), ""),
        (partitions([]), '"partitions" is not an object'),
        (partitions({"t": 3}), "the partitions of 't' are not a list of numbers"),
        (partitions({"t": [-1]}), "the partitions of 't' are not a list of numbers"),
        (partitions({"t": [1.0]}), "the partitions of 't' are not a list of numbers"),
        (partitions({"t": [1, 1]}), "the topic 't' has a partition twice"),
    ],
)
def test_a_bad_line_is_named_by_number_and_ends_the_command_with_2(line: str | bytes, why: str) -> None:
    bad = line if isinstance(line, bytes) else line.encode()
    result = run("assign", stdin=GOOD.encode() + b"\n\n" + bad + b"\n" + GOOD.encode())
    assert result.exit_code == 2
    assert result.stderr.startswith("zkconsumer: <stdin>, line 3: ")
    assert why in result.stderr
    assert len(result.stderr) < 500
    assert len(result.stdout.splitlines()) == 1, "what was before is answered"


def test_options_that_are_not_known_end_with_2() -> None:
    assert run("assign", "--strategy", "sticky").exit_code == 2
    assert run("assign", "--compatibility", "0.9").exit_code == 2
    assert run("assign", "no-such-file").exit_code == 2


# --- the command line itself --------------------------------------------------------------------------------------


def test_every_command_of_the_table_is_there_and_says_something() -> None:
    shown = run("--help").stdout
    for name, command in cli.COMMANDS.items():
        assert name in shown
        assert command.help in " ".join(shown.split())
        found = main.get_command(click.Context(main), name)  # type: ignore[attr-defined]
        assert found is not None
        assert found.name == name
        assert found.help


def test_help_loads_what_finds_commands_and_none_of_them() -> None:
    program = (
        "import sys, zkconsumer; before = set(sys.modules); from click.testing import CliRunner; "
        "from zkconsumer.cli import main; print(CliRunner().invoke(main, ['--help']).exit_code, "
        "*sorted(m for m in set(sys.modules) - before if m.startswith(('zkconsumer', 'bridge', 'rich', 'pyspark'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    code, *loaded = done.stdout.split()
    # Of the plug-ins, whose first sentences are shown.
    doors = {
        "bridge",
        "bridge.commands",
        *(f"bridge.commands.{name}" for name in ("broker_command", "demo", "migrate", "pipeline", "spark", "web")),
    }
    names = (
        *("", ".command_hints", ".console", ".contexts", ".first_commands", ".json_errors", ".lazy_commands", ".main"),
        *(".options", ".plugin_commands", ".terminal"),
    )
    finders = {"zkconsumer.errors", "zkconsumer.properties", *(f"zkconsumer.cli{name}" for name in names)}
    assert code == "0"
    assert set(loaded) <= finders | doors


def test_ctrl_c_while_the_command_line_is_loaded_is_a_line_and_no_traceback() -> None:
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background ignores it
        "class CtrlC:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'zkconsumer.cli.main': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "import zkconsumer.cli\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "zkconsumer: interrupted\n")


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"zkconsumer {zkconsumer.__version__}\n"
    [line] = [line for line in SETUP.read_text("utf-8").splitlines() if "version=" in line]
    assert line.strip() == "version=VERSION,", "what is installed has the version of the package too"


def test_the_version_shows_the_packages_that_decode_when_asked_for_more() -> None:
    [line] = [line for line in run("--version", "-v").stdout.splitlines() if line.startswith("codecs: ")]
    assert line == "codecs: " + ", ".join(f"{codec} by {package}" for codec, package in implementations().items())


def test_an_unknown_command_names_the_nearest() -> None:
    result = run("asign")
    assert result.exit_code == 2
    assert "There is no command 'asign'. Did you mean 'assign'?" in result.stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command that raises what it is given."""

    def install(error: BaseException) -> None:
        @click.command()
        def fail() -> None:
            raise error

        module = type(sys)("tests_failing_command")
        module.fail = fail  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tests_failing_command", module)
        monkeypatch.setitem(cli.COMMANDS, "fail", cli.CommandEntry("tests_failing_command:fail", "Fails."))

    return install


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BrokerUnreachable("b1:9092 refused"), 1, "zkconsumer: b1:9092 refused\n"),
        (ConnectorClosed(), 2, "zkconsumer: The connector is closed; create another one.\n"),
        (InvalidConfigException("a\n  b"), 2, "zkconsumer: a\n  b\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "zkconsumer: the output cannot be written: No space left on device\n",
        ),
    ],
)
def test_errors_become_words_and_exit_codes(failing: Any, error: BaseException, code: int, words: str) -> None:
    failing(error)
    result = run("fail")
    assert result.exit_code == code
    assert result.stderr == words
    assert result.stdout == ""


def test_a_reader_that_goes_away_ends_the_command_silently(tmp_path: Path) -> None:
    groups = tmp_path / "groups.jsonl"
    groups.write_text(LINES)
    done = subprocess.run(
        ["bash", "-c", f"{SCRIPT} assign {groups} | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device is Linux's")
def test_a_full_disk_is_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    groups = tmp_path / "groups.jsonl"
    groups.write_text(LINES)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([SCRIPT, "assign", groups], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "zkconsumer: the output cannot be written: No space left on device\n")


def test_plug_ins_add_commands_and_a_broken_one_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command(help="Moves a group.")
    def move() -> None:
        click.echo("moved")

    module = type(sys)("tests_plug_in")
    module.move, module.number = move, 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests_plug_in", module)
    entries = {
        "move": EntryPoint("move", "tests_plug_in:move", PLUGIN_ENTRY_POINTS),
        "gone": EntryPoint("gone", "tests_no_such_module:move", PLUGIN_ENTRY_POINTS),
        "seven": EntryPoint("seven", "tests_plug_in:number", PLUGIN_ENTRY_POINTS),
        "assign": EntryPoint("assign", "tests_plug_in:move", PLUGIN_ENTRY_POINTS),
    }
    monkeypatch.setattr(cli, "plugins", lambda: entries)
    shown = run("--help").stdout
    assert "Moves a group." in shown
    assert "cannot be loaded" in shown
    assert run("move").stdout == "moved\n"
    assert run("assign", stdin="").stdout == "", "a plug-in does not take the place of a command"
    for name, words in (("gone", "cannot be loaded"), ("seven", "is not a click command")):
        result = run(name)
        assert result.exit_code == 2
        assert words in result.stderr
