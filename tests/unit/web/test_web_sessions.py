"""The exchange of the token for a session, and what ends or prevents it."""

from __future__ import annotations

from bridge.web.web_sessions import (
    CLIENTS_MAX,
    SESSION_MS,
    SESSIONS_MAX,
    WRONG_TOKENS_MAX,
    WRONG_TOKENS_WINDOW_MS,
    WebSessions,
)

TOKEN = "the token of this test"


def test_only_the_token_begins_a_session() -> None:
    sessions = WebSessions(TOKEN)
    assert not sessions.exchange("wrong", "a", "client", 0)
    assert not sessions.is_valid("a", 0)
    assert sessions.exchange(TOKEN, "b", "client", 0)
    assert sessions.is_valid("b", SESSION_MS - 1)
    assert not sessions.is_valid(TOKEN, 0), "the token itself is no session"


def test_a_session_ends() -> None:
    sessions = WebSessions(TOKEN)
    sessions.exchange(TOKEN, "a", "client", 0)
    assert not sessions.is_valid("a", SESSION_MS)
    assert not sessions.is_valid("a", 0), "and never begins again"


def test_the_number_of_sessions_is_bounded() -> None:
    sessions = WebSessions(TOKEN)
    for number in range(SESSIONS_MAX + 1):
        sessions.exchange(TOKEN, str(number), "client", 0)
    assert not sessions.is_valid("0", 0)
    assert sessions.is_valid("1", 0)


def test_wrong_tokens_block_their_client_for_a_minute_and_no_other() -> None:
    sessions = WebSessions(TOKEN)
    for number in range(WRONG_TOKENS_MAX):
        assert not sessions.is_token("guess", "attacker", number)
    assert sessions.is_blocked("attacker", WRONG_TOKENS_MAX)
    assert not sessions.exchange(TOKEN, "a", "attacker", WRONG_TOKENS_MAX), "also the right one: nothing is learnt"
    assert sessions.exchange(TOKEN, "b", "operator", WRONG_TOKENS_MAX)
    assert sessions.exchange(TOKEN, "c", "attacker", WRONG_TOKENS_WINDOW_MS)


def test_the_memory_for_wrong_tokens_is_bounded() -> None:
    sessions = WebSessions(TOKEN)
    for number in range(CLIENTS_MAX + 10):
        sessions.is_token("guess", str(number), 0)
    assert len(sessions._wrong_ms) == CLIENTS_MAX
