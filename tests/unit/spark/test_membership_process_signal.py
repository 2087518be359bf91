"""SIGTERM of a membership process in the middle of a wait of its main thread."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal, sys, threading

from bridge.spark.membership import pipe_messages
from bridge.spark.membership.membership_process import MembershipProcess, ParentPipe


class Membership:
    # As the real one: calls wait for this event, and the end of the query sets it.
    gone = threading.Event()

    def stop_waiting(self):
        self.gone.set()

    def abandon(self):
        return True

    def observe(self):
        sys.settrace(send_sigterm)
        self.gone.wait(60)
        sys.settrace(None)
        return {}


def send_sigterm(frame, event, _):
    if frame.f_code is not threading.Event.wait.__code__:
        return None
    if event == "line" and "signaled" in frame.f_locals:  # the event's lock is held
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGTERM)
        return None
    return send_sigterm


requests, requests_out = os.pipe()
os.dup2(requests, 0)
process = MembershipProcess(ParentPipe(os.getppid()))
process._membership = Membership()
os.write(requests_out, pipe_messages.encode(pipe_messages.ProcessRequest(1, "metrics", 1_000, {})))
sys.exit(process.run() + 3)
"""


def test_sigterm_while_the_main_thread_holds_the_lock_of_the_event_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (3, "")
