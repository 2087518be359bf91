"""The Unix socket for health requests; only its user may open it.

    auto               $XDG_RUNTIME_DIR/zkconsumer/PID.sock, else /tmp/zkconsumer-UID/PID.sock
    /any/{pid}.sock    this path, with {pid} replaced by the process id

A client receives one line of JSON and the end of the stream; no request is read.  A socket file that a killed process
left is replaced, if it belongs to our user and no process answers there.  Files of other users are never touched.
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
"""The maximum length of a Unix socket's path."""

ANSWER_BYTES_MAX = 1024 * 1024
CONNECT_CHECK_S = 0.5
CONNECT_PAUSE_S = 0.02
BACKLOG = 128
PRIVATE_FOLDER, PRIVATE_SOCKET = 0o700, 0o600
_PEER = struct.Struct("3i")


def socket_path(setting: str) -> Path:
    """The path of ``health.socket`` in this process; creates the folder of ``auto``.

    Raises ``UsageError`` for a path that is too long, or a folder that other users may write.
    """
    if setting == AUTO:
        path = _own_folder() / f"{os.getpid()}.sock"
    else:
        path = Path(setting.replace("{pid}", str(os.getpid())))
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise UsageError(f"health.socket={path}: a socket's path has at most {PATH_BYTES_MAX} bytes: set a shorter one")
    return path


def open_listening_socket(path: Path) -> socket.socket:
    """A listening socket at the path.  Raises ``UsageError``."""
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("health.socket: this system has no Unix sockets; remove the setting")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        made.bind(str(path))
        path.chmod(PRIVATE_SOCKET)  # before a client can connect
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise UsageError(f"health.socket={path}: the socket cannot be created: {error.strerror or error}") from error
    except BaseException:
        made.close()
        raise
    return made


def socket_identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the socket file, to detect a replacement; None if the file does not exist."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def query_health(path: Path, timeout_ms: int, *, owner: int | None = None, pid: int | None = None) -> dict[str, Any]:
    """The health report of the process that listens at ``path``.

    ``owner`` and ``pid``: the required user of the socket and the required process; None: not checked.
    Raises ``HealthUnavailable`` when no process answers in time, or the answer is not a health report.
    """
    try:
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode):
            raise HealthUnavailable(f"{path} is not a socket")
        if owner is not None and found.st_uid != owner:
            raise HealthUnavailable(
                f"{path} belongs to user {found.st_uid}, not to user {owner}: its answer is not trusted"
            )
        heard = _receive_answer(path, timeout_ms, pid)
    except OSError as error:
        raise HealthUnavailable(f"{path}: {error.strerror or error}") from error
    try:
        answer = json.loads(heard)
    except ValueError as error:
        raise HealthUnavailable(f"{path}: the answer is not a health report of a member: {heard[:80]!r}") from error
    known = isinstance(answer, dict) and all(isinstance(answer.get(key), bool) for key in ("healthy", "alive"))
    if not known or not isinstance(answer.get("members"), list):
        raise HealthUnavailable(f"{path}: the answer is not a health report of a member: {heard[:80]!r}")
    return dict(answer)


def query_process_health(pid: int, timeout_ms: int) -> dict[str, Any]:
    """The health report of a process with ``health.socket=auto``.  Raises ``HealthUnavailable``."""
    owner = _user_of(pid)
    folders = _folders(owner)
    for folder in folders:
        path = folder / f"{pid}.sock"
        if socket_identity(path) is not None:
            return query_health(path, timeout_ms, owner=owner, pid=pid)
    places = " or ".join(str(folder) for folder in folders)
    raise HealthUnavailable(f"no {pid}.sock exists in {places}: set health.socket=auto in that process")


# --- helpers ------------------------------------------------------------------------------------------------------


def _own_folder() -> Path:
    folder = _folders(os.getuid())[0]
    try:
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise UsageError(f"health.socket=auto: {folder} cannot be created: {error.strerror or error}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(
            f"health.socket=auto: {folder} must be a folder of user {os.getuid()} that no other user may write; remove "
            "it, or set a path"
        )
    return folder


def _folders(owner: int) -> list[Path]:
    """The folders that may contain the sockets of a user's processes, the preferred one first."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [Path(runtime) / "zkconsumer"] if owner == os.getuid() and os.path.isabs(runtime) else []
    places.append(Path("/tmp") / f"zkconsumer-{owner}")
    if owner != os.getuid() or not runtime:
        places.append(Path(f"/run/user/{owner}/zkconsumer"))
    return places


def _user_of(pid: int) -> int:
    """The user id of a process; ours if the system does not report it."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError as error:
        if error.errno == errno.ENOENT and os.path.exists("/proc/self"):
            raise HealthUnavailable(f"process {pid} does not exist") from error
        return os.getuid()


def _remove_stale(path: Path) -> None:
    """Remove an unused socket of our user at the path.  Raises ``UsageError`` if another file or process is there."""
    before = socket_identity(path)
    if before is None:
        return
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(f"health.socket={path}: another file exists there and is not removed; set another path")
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
            pass  # any other error: a process may use the socket
    raise UsageError(f"health.socket={path}: another process answers there; put {{pid}} into the path")


def _receive_answer(path: Path, timeout_ms: int, pid: int | None) -> bytes:
    end_ms = SYSTEM_CLOCK.now_ms() + timeout_ms
    heard = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        while not _connected(asked, path):
            if SYSTEM_CLOCK.now_ms() >= end_ms:
                raise HealthUnavailable(f"{path}: no process accepts the connection within {timeout_ms} ms")
            threading.Event().wait(CONNECT_PAUSE_S)
        peer = _peer_pid(asked)
        if pid and peer and peer != pid:
            raise HealthUnavailable(f"{path} is served by process {peer}, not by {pid}: its answer is not trusted")
        while True:
            left_ms = end_ms - SYSTEM_CLOCK.now_ms()
            if left_ms <= 0:
                raise HealthUnavailable(f"{path}: no complete answer within {timeout_ms} ms")
            asked.settimeout(left_ms / 1000)
            try:
                more = asked.recv(65_536)
            except TimeoutError as error:
                raise HealthUnavailable(f"{path}: no complete answer within {timeout_ms} ms") from error
            if not more:
                return heard
            heard += more
            if len(heard) > ANSWER_BYTES_MAX:
                raise HealthUnavailable(f"{path}: an answer of more than {ANSWER_BYTES_MAX} bytes")


def _connected(asked: socket.socket, path: Path) -> bool:
    """Connect; False if the backlog of the socket is full."""
    asked.setblocking(False)
    try:
        asked.connect(str(path))
    except BlockingIOError:
        return False
    return True


def _peer_pid(asked: socket.socket) -> int:
    """The id of the listening process; 0 if the system does not report it (for example across containers)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    with suppress(OSError):
        return int(_PEER.unpack(asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])
    return 0
