"""The metrics of the membership process: ``MembershipMeters`` for its membership, numbers for ``observe``, text for
Prometheus.

One thread serves the text, one scrape after the other, and only where ``metrics.listen`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

from zkconsumer.base.clock import Clock
from zkconsumer.base.threads import OnThreadError, WorkerThread, spawn
from zkconsumer.errors import UsageError
from zkconsumer.observe.metrics import Meter

SCRAPE_TIMEOUT_S = 5
"""How long a client may take to send its scrape request."""

STOP_MS = 1_000

GAUGES = {
    "owned_partitions": "Partitions that this query owns, including those that drain.",
    "leased_partitions": "Partitions that the current batch reads.",
    "draining_partitions": "Partitions for which other members wait.",
    "assignment_complete": "1 while the query owns its complete assignment.",
    "rebalances": "How often the assignment changed since the query began.",
    "in_coordinator_group": "1 while the membership process is a member of the coordinator group.",
    "group_switches": "How often the membership process became a member of the other group.",
    "waiting_for_migration": "1 while the membership process is in neither group, because the group migrates.",
}


class BatchMembershipMeters:
    """``MembershipMeters``; called on the membership's thread."""

    def __init__(self, clock: Clock, on_change: Callable[[], None], assignment: Callable[[], object]) -> None:
        self.zookeeper_commits = Meter(clock)
        self.kafka_commits = Meter(clock)
        self.is_assignment_complete = False
        self.rebalances = 0
        self._on_change = on_change
        self._assignment = assignment
        self._last: object = None

    def rebalance_started(self) -> None:
        self.is_assignment_complete = False

    def rebalance_completed(self) -> None:
        assignment = self._assignment()
        if self._last is not None and assignment != self._last:
            self.rebalances += 1
        self._last = assignment
        self.is_assignment_complete = True
        self._on_change()


def render_prometheus(group: str, member: str, values: Mapping[str, int]) -> str:
    """Text in the format of Prometheus 0.0.4: gauges as ``zkconsumer_spark_<name>``, counters with ``_total``."""
    labels = f'{{group="{_escaped(group)}",member="{_escaped(member)}"}}'
    lines: list[str] = []
    for name, value in sorted(values.items()):
        kind, end = ("gauge", "") if name in GAUGES else ("counter", "_total")
        full = f"zkconsumer_{name}{end}" if name.startswith("spark_") else f"zkconsumer_spark_{name}{end}"
        help_ = GAUGES.get(name, "See the page counters.")
        lines += [f"# HELP {full} {help_}", f"# TYPE {full} {kind}", f"{full}{labels} {value}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsServer:
    """Serves ``text()`` under every path at ``listen`` (``host:port``)."""

    def __init__(self, listen: str, text: Callable[[], str], on_thread_error: OnThreadError) -> None:
        """Raises ``UsageError`` when the process cannot listen on the address."""

        class Handler(BaseHTTPRequestHandler):
            timeout = SCRAPE_TIMEOUT_S

            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class names it so)
                """Do not log scrapes."""

        host, _, port = listen.rpartition(":")
        try:
            self._server = HTTPServer((host.strip("[]"), int(port)), Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise UsageError(f"metrics.listen={listen}: {error}; set host:port that is free on the driver") from error
        self.port = int(self._server.server_address[1])
        self._worker: WorkerThread = spawn(
            "membership-metrics-served", lambda _: self._server.serve_forever(poll_interval=0.2), on_thread_error
        )

    def close(self) -> None:
        self._server.shutdown()
        self._worker.join(STOP_MS)
        self._server.server_close()
