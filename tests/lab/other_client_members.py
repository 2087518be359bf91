"""Members of other clients as processes, with the surface of ``ScalaMember``: pykafka, kafka-python, kafka-node.

Their programs are in ``tests/lab/other_clients``.  The clients are installed once, from the package registries, into
the sandbox's cache folder (``~/.cache/zkconsumer/clients``), away from the packages of the Python that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from zkconsumer.testing.sandbox import MemberProcess, Sandbox, cache
from zkconsumer.testing.sandbox.child_process import ChildProcess

PROGRAMS = Path(__file__).parent / "other_clients"
INSTALL_TIMEOUT_S = 180
OLD_PYTHONS = ("python3.6", "python2.7")
"""kafka-python 0.9.5 has a parameter with the name ``async``, which is a keyword from 3.7 on."""


class ClientUnavailable(Exception):
    """A client cannot be installed or run here; the text is the reason."""


@dataclass(frozen=True)
class OtherClient:
    """A client: its package with the release, its program, and the interpreter (None: the Python that runs us)."""

    package: str
    release: str
    program: str
    interpreters: tuple[str, ...] | None = None

    @property
    def is_python(self) -> bool:
        return self.program.endswith(".py")


PYKAFKA = OtherClient("pykafka", "2.8.0", "pykafka_member.py")
OLD_KAFKA_PYTHON = OtherClient("kafka-python", "0.9.5", "old_kafka_python_member.py", OLD_PYTHONS)
UNBALANCED_KAFKA_PYTHON = OtherClient(
    "kafka-python", "2.0.2", "unbalanced_kafka_python_member.py", ("python3.11", "python3.10", "python3.9", "python3.8")
)
KAFKA_NODE = OtherClient("kafka-node", "2.6.1", "kafka_node_member.js", ("node",))


def find_interpreter(names: Sequence[str]) -> str:
    """The first of these programs in ``PATH``, or, for a Python, of pyenv.  Raises ``ClientUnavailable``."""
    for name in names:
        found = shutil.which(name)
        # The shim of pyenv exists for each of its versions, and fails for those that are not selected.
        if found is not None and "shims" not in Path(found).parts:
            return found
        versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        for program in sorted(versions.glob(f"{name.removeprefix('python')}.*/bin/{name}")):
            return str(program)
    raise ClientUnavailable(f"no {' or '.join(names)} here")


def install(client: OtherClient) -> Path:
    """The folder that has the client's packages, filled on first use.  Raises ``ClientUnavailable``."""
    target = cache.folder("clients") / f"{client.package}-{client.release}"
    if target.is_dir():
        return target
    with cache.atomic_folder(target) as building:
        if client.is_python:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(building)]
            command.append(f"{client.package}=={client.release}")
        else:
            npm = shutil.which("npm")
            if npm is None:
                raise ClientUnavailable("no npm here")
            command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--omit=optional"]
            command += ["--prefix", str(building), f"{client.package}@{client.release}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise ClientUnavailable(f"{client.package} was not installed within {INSTALL_TIMEOUT_S} s") from error
        if done.returncode != 0:
            raise ClientUnavailable(f"{client.package} {client.release} cannot be installed: {done.stderr[-500:]}")
    return target


def require_client(client: OtherClient) -> None:
    """Skips the test if the client cannot be had here.  These tests are nightly, so CI does not run them."""
    try:
        find_interpreter(client.interpreters or ())
    except ClientUnavailable as reason:
        if client.interpreters is not None:
            pytest.skip(str(reason))
    try:
        install(client)
    except ClientUnavailable as reason:
        pytest.skip(str(reason))


class OtherClientMember(MemberProcess):
    """A member; ``arguments`` are those of its program.  Nothing runs before ``start``."""

    def __init__(self, sandbox: Sandbox, client: OtherClient, group: str, name: str, arguments: Sequence[str]) -> None:
        super().__init__(sandbox.run, group, name)
        self._client = client
        self._arguments = arguments

    def _launch(self) -> ChildProcess:
        program, packages = str(PROGRAMS / self._client.program), install(self._client)
        interpreter = find_interpreter(self._client.interpreters) if self._client.interpreters else sys.executable
        environment = dict(os.environ)
        if self._client.is_python:
            environment["PYTHONPATH"] = str(packages)
        else:
            environment["NODE_PATH"] = str(packages / "node_modules")
        # The programs ignore their last argument: the reaper of the sandbox finds the process by it.
        words = [interpreter, program, *self._arguments, self.run.marker]
        return ChildProcess(self.run, "member", self.name, words, environment=environment)
