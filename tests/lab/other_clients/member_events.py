"""What the programs of this folder have in common.  Runs in Python 2.7 and in each Python 3; imports no client.

They print an event a line, in the words of the Scala member's program, and read commands from standard input:
``commit``; its end, or SIGTERM, ends the program cleanly.
"""

from __future__ import absolute_import

import json
import signal
import sys
import threading
import time


def print_event(event, **members):
    """Print one event."""
    members["event"] = event
    members["t"] = int(time.time() * 1000)
    sys.stdout.write(json.dumps(members) + "\n")
    sys.stdout.flush()


class Commands(object):
    """What standard input and signals request: ``is_stopped`` and ``commit_wanted`` are events of ``threading``."""

    def __init__(self):
        self.is_stopped = threading.Event()
        self.commit_wanted = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.is_stopped.set())
        reader = threading.Thread(target=self._read)
        reader.daemon = True
        reader.start()

    def take_commit(self):
        """Return whether a commit was requested since the last call."""
        if not self.commit_wanted.is_set():
            return False
        self.commit_wanted.clear()
        return True

    def _read(self):
        while True:
            line = sys.stdin.readline()
            if not line:
                break
            if line.strip() == "commit":
                self.commit_wanted.set()
        self.is_stopped.set()
