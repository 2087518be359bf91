"""Who holds our id: the answer of ``cons``, as servers of 3.4 and 3.8 write it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from zkconsumer.zk.four_letter_words import host_of_session, send_four_letter_word

ANSWER = (
    b" /127.0.0.1:50312[0](queued=0,recved=1,sent=0)\n"
    b" /10.0.0.7:41234[1](queued=0,recved=55,sent=55,sid=0x1000056d7fb0001,lop=PING,est=1795250672130,to=4000)\n"
    b" /[0:0:0:0:0:0:0:1]:41235[1](queued=0,recved=5,sent=5,sid=0xffffffffffffffff,lop=PING)\n\n"
)
TIMEOUT_MS = 2_000


@pytest.fixture
def server() -> Iterator[tuple[str, int]]:
    """Answers one question with ``ANSWER`` and closes, as ZooKeeper does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            asked, _ = listening.accept()
            with asked:
                assert asked.recv(4) == b"cons"
                asked.sendall(ANSWER)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()
        thread.join(TIMEOUT_MS / 1000)


def test_the_host_of_a_session_is_found(server: tuple[str, int]) -> None:
    assert host_of_session([server], 0x1000056D7FB0001, TIMEOUT_MS) == "10.0.0.7"


def test_a_session_that_no_server_lists_has_no_host(server: tuple[str, int]) -> None:
    assert host_of_session([server], 0x42, TIMEOUT_MS) is None


def test_a_server_that_does_not_listen_is_passed_over(server: tuple[str, int]) -> None:
    assert host_of_session([("127.0.0.1", 1), server], 0x1000056D7FB0001, TIMEOUT_MS) == "10.0.0.7"


def test_an_answer_without_end_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def trickle() -> None:
            asked, _ = listening.accept()
            with asked, suppress(OSError):
                while True:  # until the other side has closed
                    asked.sendall(b"x")
                    time.sleep(0.005)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        with pytest.raises(TimeoutError):
            send_four_letter_word(listening.getsockname(), "cons", 100)
        thread.join(TIMEOUT_MS / 1000)
        assert not thread.is_alive()
