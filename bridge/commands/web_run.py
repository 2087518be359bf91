"""What ``zkconsumer web`` does: checks its options, listens, and serves the page until a signal."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from zkconsumer.admin.admin_session import AdminDependencies, AdminSession, AnySession, BrokerAdminSession
from zkconsumer.cli.command_hints import complete_commands_in_json
from zkconsumer.cli.common import open_admin_session
from zkconsumer.cli.console import log_to_console, print_message
from zkconsumer.cli.options import ClusterOptions, read_settings_file
from zkconsumer.errors import UsageError
from zkconsumer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.web.page_server import PageTls
    from bridge.web.request_checks import AllowedRequests

TOKEN_BYTES = 32

EXTRA_MISSING = "the page needs the packages of the extra [web]: pip install '.[web]' in a clone of its repository"


def run_web(context: click.Context, cluster: ClusterOptions, options: Mapping[str, Any]) -> None:
    """Serve the page; ``options``: those of the command, by the names of its parameters.

    Raises ``UsageError`` for a wrong option and without the extra [web], and what opening a session raises.
    """
    try:
        from bridge.web.page_app import PageSettings
        from bridge.web.page_server import PageServer, listen
    except ImportError as error:
        raise UsageError(f"{EXTRA_MISSING} ({error})") from error

    log_to_console(logging.WARNING)
    tls = _tls(options["tls_certificate"], options["tls_key"])
    opener = session_opener(context, cluster)
    listening = listen(options["host"], options["port"])
    with contextlib.closing(listening):
        allowed = allowed_requests(
            options["host"],
            listening.getsockname()[1],
            names=options["names"],
            tls=tls,
            token_file=options["token_file"],
        )
        PageServer(
            listening,
            allowed,
            PageSettings(cluster_text(cluster), __version__),
            opener,
            complete=lambda document: complete_commands_in_json(document, context),
            tls=tls,
            on_started=lambda: print_addresses(allowed),
        ).run()
    print_message("stopped")


def session_opener(context: click.Context, cluster: ClusterOptions) -> Callable[[], AnySession]:
    """A function that opens a session as ``open_admin_session`` does; each thread needs one of its own.

    Opens one at once, so that a wrong address is an error of the command.  Raises what ``open_admin_session`` raises.
    """
    first = open_admin_session(context, cluster)
    first.close()
    dependencies = context.find_object(AdminDependencies)
    servers = cluster.bootstrap_servers or read_settings_file(cluster.config_file).get("bootstrap.servers")

    def open_session() -> AnySession:
        if isinstance(first, BrokerAdminSession):
            assert servers is not None, "the first session has them"
            return BrokerAdminSession.open(servers, cluster.config_file, dependencies)
        return AdminSession.open(cluster.zookeeper, cluster.config_file, dependencies, servers)

    return open_session


def cluster_text(cluster: ClusterOptions) -> str:
    """The addresses of the cluster, for the head of the page."""
    in_file = read_settings_file(cluster.config_file)
    zookeeper = cluster.zookeeper or in_file.get("zookeeper.connect")
    servers = cluster.bootstrap_servers or in_file.get("bootstrap.servers")
    return ", ".join(one for one in (zookeeper, servers) if one)


def allowed_requests(
    host: str, port: int, *, names: Sequence[str], tls: PageTls | None, token_file: Path | None
) -> AllowedRequests:
    """What the server answers; with a token on every address but loopback.  Raises ``UsageError``."""
    from bridge.web.request_checks import AllowedRequests, is_loopback

    needs_token = not is_loopback(host) or token_file is not None
    machine = socket.gethostname().lower()
    given = [name.strip().lower() for name in names]
    for name in given:
        if not name or ":" in name or "/" in name:
            raise UsageError(f"--allow-host {name!r} is not a host name: omit the scheme and the port")
    return AllowedRequests(
        host,
        port,
        "http" if tls is None else "https",
        frozenset([*given, *([] if is_loopback(host) else [machine])]),
        _token(token_file) if needs_token else None,
    )


def print_addresses(allowed: AllowedRequests) -> None:
    """The address on standard output; what to know about it on standard error.

    The token is after #, which browsers send to no server: it is in no log.
    """
    is_any = allowed.host in ("0.0.0.0", "::")
    host = socket.gethostname() if is_any else f"[{allowed.host}]" if ":" in allowed.host else allowed.host
    address = f"{allowed.scheme}://{host}:{allowed.port}/"
    if allowed.token is None:
        click.echo(address)
        return
    click.echo(f"{address}sign-in#token={quote(allowed.token, safe='')}")
    print_message("Every browser needs the token once; after # it is not sent to any server, and is in no log.")
    if allowed.scheme == "http":
        print_message(
            "The connection is not encrypted: others on the network can read the token and everything that the page "
            "shows. Use --tls-certificate, or 127.0.0.1 and an ssh tunnel."
        )


def _tls(certificate: Path | None, key: Path | None) -> PageTls | None:
    from bridge.web.page_server import PageTls, check_tls

    if certificate is None:
        if key is not None:
            raise UsageError("--tls-key needs a --tls-certificate")
        return None
    tls = PageTls(certificate, key)
    check_tls(tls)
    return tls


def _token(file: Path | None) -> str:
    from bridge.web.request_checks import TOKEN_CHARS_MIN

    if file is None:
        return secrets.token_urlsafe(TOKEN_BYTES)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    token = lines[0].strip() if lines else ""
    if len(token) < TOKEN_CHARS_MIN:
        raise UsageError(f"the token in {file} is too short: at least {TOKEN_CHARS_MIN} characters")
    return token
