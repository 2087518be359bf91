"""For tests of programs that use the bridge: an embedded broker, a recorder of its history, and a checker for Spark."""

from bridge.broker.server_settings import TlsFiles
from bridge.testing.embedded_broker import EmbeddedBroker
from bridge.testing.history_recorder import HistoryRecorder
from bridge.testing.query_checker import (
    QUERY_FINDING_CODES,
    MemberRead,
    QueryFinding,
    QueryHistory,
    QueryVerdict,
    SinkRow,
    check_query_history,
)

__all__ = [
    "QUERY_FINDING_CODES",
    "EmbeddedBroker",
    "HistoryRecorder",
    "MemberRead",
    "QueryFinding",
    "QueryHistory",
    "QueryVerdict",
    "SinkRow",
    "TlsFiles",
    "check_query_history",
]
