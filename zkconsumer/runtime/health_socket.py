"""Where the health of a process is asked for: a unix socket that only its user may open.

    auto               $XDG_RUNTIME_DIR/zkconsumer/PID.sock, else /tmp/zkconsumer-UID/PID.sock
    /any/{pid}.sock    as it stands, with the process id put in

Whoever connects is sent one line of JSON, and the end; nothing is read.  What a killed process left behind is
replaced, when it is a socket of our user and nobody answers there.  What somebody else made is never touched.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import HealthUnavailable, UsageError

AUTO = "auto"
PATH_BYTES_MAX = 107
"""What a unix socket's address can hold, with its end."""

ANSWER_BYTES_MAX = 1024 * 1024
CONNECT_CHECK_S = 0.5
CONNECT_PAUSE_S = 0.02
BACKLOG = 128
PRIVATE_FOLDER, PRIVATE_SOCKET = 0o700, 0o600
_PEER = struct.Struct("3i")


def socket_path(setting: str) -> Path:
    """The path that ``health.socket`` means in this process; makes the folder of ``auto``.

    Raises ``UsageError`` for a path that no socket can have, or a folder that others may write.
    """
    if setting == AUTO:
        path = _own_folder() / f"{os.getpid()}.sock"
    else:
        path = Path(setting.replace("{pid}", str(os.getpid())))
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise UsageError(f"health.socket={path}: a socket's path holds {PATH_BYTES_MAX} bytes: take a shorter one")
    return path


def open_listening_socket(path: Path) -> socket.socket:
    """A listening socket at the path.  Raises ``UsageError``."""
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("health.socket: this system has no unix sockets; leave the setting out")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        made.bind(str(path))
        path.chmod(PRIVATE_SOCKET)  # before anybody can connect
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise UsageError(f"health.socket={path}: it cannot be made: {error.strerror or error}") from error
    except BaseException:
        made.close()
        raise
    return made


def socket_identity(path: Path) -> tuple[int, int] | None:
    """What tells this socket from another that was put in its place; None when there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def query_health(path: Path, timeout_ms: int, *, owner: int | None = None, pid: int | None = None) -> dict[str, Any]:
    """The answer of whoever listens there.

    ``owner`` and ``pid``: whose socket it must be, and which process must answer, when that is to be checked.
    Raises ``HealthUnavailable`` when nobody answers in time, or what answers is something else.
    """
    try:
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode):
            raise HealthUnavailable(f"{path} is no socket")
        if owner is not None and found.st_uid != owner:
            raise HealthUnavailable(
                f"{path} belongs to user {found.st_uid} and not to user {owner}: it is not believed"
            )
        heard = _receive_answer(path, timeout_ms, pid)
    except OSError as error:
        raise HealthUnavailable(f"{path}: {error.strerror or error}") from error
    try:
        answer = json.loads(heard)
    except ValueError as error:
        raise HealthUnavailable(f"{path}: what answers there is no member: {heard[:80]!r}") from error
    known = isinstance(answer, dict) and all(isinstance(answer.get(key), bool) for key in ("healthy", "alive"))
    if not known or not isinstance(answer.get("members"), list):
        raise HealthUnavailable(f"{path}: what answers there is no member: {heard[:80]!r}")
    return dict(answer)


def query_process_health(pid: int, timeout_ms: int) -> dict[str, Any]:
    """The answer of a process with ``health.socket=auto``.  Raises ``HealthUnavailable``."""
    owner = _user_of(pid)
    folders = _folders(owner)
    for folder in folders:
        path = folder / f"{pid}.sock"
        if socket_identity(path) is not None:
            return query_health(path, timeout_ms, owner=owner, pid=pid)
    places = " or ".join(str(folder) for folder in folders)
    raise HealthUnavailable(f"there is no {pid}.sock in {places}: is health.socket=auto set in that process?")


# --- parts --------------------------------------------------------------------------------------------------------


def _own_folder() -> Path:
    folder = _folders(os.getuid())[0]
    try:
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise UsageError(f"health.socket=auto: {folder} cannot be made: {error.strerror or error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(
            f"health.socket=auto: {folder} must be a folder of user {os.getuid()} that nobody else may write; remove "
            "it, or set a path"
        )
    return folder


def _folders(owner: int) -> list[Path]:
    """Where the sockets of a user's processes may be, the preferred folder first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime) / "zkconsumer"] if owner == os.getuid() and os.path.isabs(runtime) else []
    places.append(Path("/tmp") / f"zkconsumer-{owner}")
    if owner != os.getuid() or not runtime:
        places.append(Path(f"/run/user/{owner}/zkconsumer"))
    return places


def _user_of(pid: int) -> int:
    """The user of a process; ours when the system does not tell."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError as error:
        if error.errno == errno.ENOENT and os.path.exists("/proc/self"):
            raise HealthUnavailable(f"there is no process {pid}") from error
        return os.getuid()


def _remove_stale(path: Path) -> None:
    """Make room at the path.  Raises ``UsageError`` when what is there is not ours to remove."""
    before = socket_identity(path)
    if before is None:
        return
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(f"health.socket={path}: something else is there, which is not removed; take another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(CONNECT_CHECK_S)
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            if socket_identity(path) == before:
                path.unlink(missing_ok=True)
            return
        except FileNotFoundError:
            return
        except OSError:
            pass  # whatever it is, somebody is there
    raise UsageError(f"health.socket={path}: another process answers there; put {{pid}} into the path")


def _receive_answer(path: Path, timeout_ms: int, pid: int | None) -> bytes:
    end_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
    heard = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        while not _connected(asked, path):
            if SYSTEM_CLOCK.now_ms() >= end_ms:
                raise HealthUnavailable(f"{path}: nobody takes the connection within {timeout_ms} ms")
            threading.Event().wait(CONNECT_PAUSE_S)
        peer = _peer_pid(asked)
        if pid and peer and peer != pid:
            raise HealthUnavailable(f"{path} is served by process {peer} and not by {pid}: it is not believed")
        while True:
            left_ms = end_ms - SYSTEM_CLOCK.now_ms()
            if left_ms <= 0:
                raise HealthUnavailable(f"{path}: no whole answer within {timeout_ms} ms")
            asked.settimeout(left_ms / 1000)
            try:
                more = asked.recv(65_536)
            except TimeoutError as error:
                raise HealthUnavailable(f"{path}: no whole answer within {timeout_ms} ms") from error
            if not more:
                return heard
            heard += more
            if len(heard) > ANSWER_BYTES_MAX:
                raise HealthUnavailable(f"{path}: an answer of more than {ANSWER_BYTES_MAX} bytes")


def _connected(asked: socket.socket, path: Path) -> bool:
    """False when too many others wait there."""
    asked.setblocking(False)
    try:
        asked.connect(str(path))
    except BlockingIOError:
        return False
    return True


def _peer_pid(asked: socket.socket) -> int:
    """Which process listens; 0 when the system does not tell, or not across containers."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    with suppress(OSError):
        return int(_PEER.unpack(asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])
    return 0
