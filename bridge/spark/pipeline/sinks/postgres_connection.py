"""Connections to the PostgreSQL of a sink, and its errors as errors of this package.

The password is read where a connection is made, on executors too (``SecretReference``), so a plan has only its place.
An error never has a value of a row: the messages of PostgreSQL about data and constraints contain values, so only the
condition and the column are reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.sinks.sink import SinkUnavailableError
from zkconsumer.errors import PreconditionFailed, UsageError

if TYPE_CHECKING:
    from psycopg import Connection

Connect: TypeAlias = "Callable[[PostgresTarget], Connection[Any]]"

APPLICATION = "zkconsumer-pipeline"

_ABOUT_DATA = ("22", "23")
"""Classes of SQLSTATE whose messages contain values: data exceptions and integrity constraints."""


_IDLE_IN_TRANSACTION = "25P03"
"""The server has ended the connection of a driver that was stopped in a transaction."""


class SinkRefusedError(PreconditionFailed):
    """The database does not execute a statement of the sink, so nothing was written; the text has its reason."""


def connect_postgres(target: PostgresTarget) -> Connection[Any]:
    """A connection to the first server that accepts writes; without automatic commits and prepared statements, so that
    a pooler of transactions may be between.

    Raises ``UsageError`` if psycopg is missing, ``SecretUnavailableError``, and the errors of psycopg.
    """
    psycopg = _import_psycopg()
    password = target.password
    connection: Connection[Any] = psycopg.connect(
        host=",".join(host for host, _ in target.servers),
        port=",".join(str(port) for _, port in target.servers),
        dbname=target.database,
        user=target.user,
        password=None if password is None else password.resolve(os.environ, lambda path: Path(path).read_bytes()),
        sslmode=target.ssl_mode,
        sslrootcert=target.ssl_root_certificate,
        connect_timeout=max(1, -(-target.connect_timeout_ms // 1_000)),
        target_session_attrs="read-write",
        application_name=APPLICATION,
        client_encoding="utf8",
        prepare_threshold=None,
    )
    return connection


@contextmanager
def postgres_errors(target: PostgresTarget) -> Iterator[None]:
    """Errors of psycopg as ``SinkUnavailableError`` (the server does not answer, or ends the connection) or
    ``SinkRefusedError``.  Raises ``UsageError`` if psycopg is missing."""
    psycopg = _import_psycopg()
    place = f"{','.join(f'{host}:{port}' for host, port in target.servers)}/{target.database}"
    try:
        yield
    except psycopg.Error as error:
        is_lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        if is_lost or error.sqlstate == _IDLE_IN_TRANSACTION:
            raise SinkUnavailableError(
                f"PostgreSQL {place}: {_text(error)}; the operator must repair the server or the access to it. The "
                "batch is repeated when the query is started again"
            ) from error
        text = f"PostgreSQL {place}: {_text(error)}; nothing was written. The operator must correct the table, its "
        text += "permissions, or the pipeline"
        if (error.sqlstate or "")[:2] in _ABOUT_DATA:
            raise SinkRefusedError(text) from None  # the error of psycopg contains values
        raise SinkRefusedError(text) from error


def _import_psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise UsageError(
            "the format postgres needs psycopg on the driver and on all executors; install the extra [postgres]"
        ) from error
    return psycopg


def _text(error: Any) -> str:
    state, where = error.sqlstate, error.diag
    if state is not None and state[:2] in _ABOUT_DATA:
        names = {"table": where.table_name, "column": where.column_name, "constraint": where.constraint_name}
        found = "".join(f", {kind} {name}" for kind, name in names.items() if name)
        return f"{type(error).__name__} (SQLSTATE {state}{found})"
    return " ".join((where.message_primary or str(error)).split())
