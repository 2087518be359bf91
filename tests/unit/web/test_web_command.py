"""``zkconsumer web``: its options, what it prints, and that it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from bridge.commands import web_run
from bridge.commands.web_run import allowed_requests, print_addresses
from bridge.web.page_server import PageTls, check_tls, listen
from bridge.web.request_checks import AllowedRequests
from zkconsumer.cli.main import main
from zkconsumer.errors import PreconditionFailed, UsageError

START = "from zkconsumer.cli.main import main; main()"


def test_loopback_needs_no_token_and_every_other_address_does() -> None:
    assert allowed_requests("127.0.0.1", 1, names=(), tls=None, token_file=None).token is None
    token = allowed_requests("0.0.0.0", 1, names=(), tls=None, token_file=None).token
    assert token is not None
    assert len(token) >= 40
    assert token != allowed_requests("0.0.0.0", 1, names=(), tls=None, token_file=None).token


def test_a_token_of_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a long enough token\n")
    assert allowed_requests("127.0.0.1", 1, names=(), tls=None, token_file=file).token == "a long enough token"
    for text in ("short", ""):
        file.write_text(text)
        with pytest.raises(UsageError, match="too short"):
            allowed_requests("0.0.0.0", 1, names=(), tls=None, token_file=file)


@pytest.mark.parametrize("name", ["http://a", "a:80", "a/b", ""])
def test_a_name_is_no_address(name: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        allowed_requests("0.0.0.0", 1, names=(name,), tls=None, token_file=None)


def test_the_token_is_printed_after_the_hash(capsys: pytest.CaptureFixture[str]) -> None:
    print_addresses(AllowedRequests("10.0.0.5", 8650, token="secret"))
    out, err = capsys.readouterr()
    assert out == "http://10.0.0.5:8650/sign-in#token=secret\n"
    assert "not encrypted" in err
    assert "secret" not in err
    print_addresses(AllowedRequests("10.0.0.5", 443, "https", token="secret"))
    assert "not encrypted" not in capsys.readouterr().err
    print_addresses(AllowedRequests("::1", 8650))
    assert capsys.readouterr().out == "http://[::1]:8650/\n"


def test_the_browser_finds_any_token_after_the_hash(capsys: pytest.CaptureFixture[str]) -> None:
    token = "aB+/c==&token=d%41#ü e"  # openssl rand -base64 makes +, / and =
    print_addresses(AllowedRequests("10.0.0.5", 8650, token=token))
    fragment = urlsplit(capsys.readouterr().out.rstrip("\n")).fragment
    assert parse_qs(fragment) == {"token": [token]}, "as URLSearchParams of the page reads it"


def test_a_port_that_is_in_use() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PreconditionFailed, match="cannot listen on"):
            listen("127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("host", ["no such host", "a..b", "a" * 64])
def test_a_host_that_is_no_address_of_this_machine(host: str) -> None:
    with pytest.raises(PreconditionFailed, match="is no address of this machine"):
        listen(host, 0)


def test_tls_files_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "none.pem"
    file.write_text("nothing")
    with pytest.raises(UsageError, match="cannot be used"):
        check_tls(PageTls(file))


def test_wrong_options() -> None:
    run = CliRunner().invoke
    assert "--port needs --web" in run(main, ["demo", "--port", "1"]).output
    assert run(main, ["web"]).exit_code == 2


def test_without_the_extra_the_command_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bridge.web.page_app", None)
    result = CliRunner().invoke(main, ["web", "--zookeeper", "x:1"])
    assert result.exit_code == 2
    assert web_run.EXTRA_MISSING in result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_serves_its_page_and_ends_by_a_signal(number: signal.Signals) -> None:
    words = [sys.executable, "-c", START, "demo", "--web", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}?format=json", timeout=60) as answer:
            groups = [one["group"] for one in json.load(answer)["groups"]]
        assert groups == ["demo", "idle", "moving"]
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
