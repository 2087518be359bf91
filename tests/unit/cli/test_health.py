"""What supervisors are told, on members in memory and real unix sockets; garbage, floods and dead members too."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, run_in_thread, take, wait_until
from zkconsumer.base.threads import live_threads
from zkconsumer.cli.main import main
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import HealthUnavailable, InvalidConfigException, UsageError
from zkconsumer.observe.lag_time import CaughtUp, KnownLagTime, PartitionLagTime, TimestampKind, UnknownLagTime
from zkconsumer.observe.lag_trend import ALREADY_CAUGHT_UP, UNKNOWN_CATCH_UP, CatchUp, LagTrend
from zkconsumer.observe.member_health import MEMBERS_SHOWN_MAX, MemberHealth, MemberHealthSnapshot, process_health
from zkconsumer.runtime import health_server as server_module
from zkconsumer.runtime.health_socket import (
    ANSWER_BYTES_MAX,
    open_listening_socket,
    query_health,
    query_process_health,
    socket_path,
)

TOPIC = "t"
SHORT_SESSION_MS = 300
NOT_JOINED = "not registered in its group: not_registered"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A socket's path, short enough for one, with nothing that is remembered of the answer before."""
    monkeypatch.setattr(server_module, "CACHED_ANSWER_MAX_AGE_MS", 0)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "h.sock"
    if len(os.fsencode(path)) > 100:
        pytest.skip(f"{path} is too long for a socket")
    return path


@pytest.fixture
def member(world: FakeEnvironment, connect: MakeConnector, place: Path) -> Iterator[ZookeeperConsumerConnector]:
    world.create_topic(TOPIC, 2)
    connector = connect(group_id="g", consumer_id="a", health_socket=str(place))
    wait_until(lambda: health(place)[1]["problems"] == [NOT_JOINED], "it knows of its session")
    yield connector
    connector.close()


def health(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer, and its one member."""
    answer = query_health(path, 3_000)
    [member] = answer["members"]
    return answer, member


def command(*words: str) -> Result:
    return CliRunner().invoke(main, ["health", *words])


def healthy_now(path: Path) -> Callable[[], bool]:
    return lambda: bool(query_health(path, 3_000)["healthy"])


# --- what is healthy ----------------------------------------------------------------------------------------------


LOOK = MemberHealthSnapshot("registered", "connected", 255, 3_000, "stable", 2, 2)


def judged(look: MemberHealthSnapshot | None = LOOK, failure: str = "") -> MemberHealth:
    return MemberHealth("g_a", "g", look, 1_000, failure, None, {"rebalances": 1})


@pytest.mark.parametrize(
    ("member", "is_healthy", "is_alive", "says"),
    [
        (judged(), True, True, ""),
        (
            judged(
                MemberHealthSnapshot("registered", "connected", 1, 1, "incomplete", 1, 0, {"t/1": "another holds it"})
            ),
            True,
            True,
            "",
        ),
        (
            judged(MemberHealthSnapshot("waiting", "connected", 1, 9, "idle", 0, 0)),
            False,
            True,
            "not registered in its group: waiting",
        ),
        (
            judged(MemberHealthSnapshot("registered", "suspended", 1, 9, "stable", 1, 1)),
            False,
            True,
            "no connection to ZooKeeper: suspended",
        ),
        (
            judged(MemberHealthSnapshot("registered", "connected", 1, 0, "stable", 1, 1)),
            False,
            True,
            "the member delivers no records",
        ),
        (judged(None), False, False, "the control thread did not answer within 1000 ms"),
        (judged(failure="the disk is full"), False, False, "an error ended this member: the disk is full"),
    ],
)
def test_healthy_is_registered_connected_and_within_the_lease(
    member: MemberHealth, is_healthy: bool, is_alive: bool, says: str
) -> None:
    assert (member.is_healthy, member.is_alive) == (is_healthy, is_alive)
    assert says in "; ".join(member.problems)
    assert bool(member.problems) is not is_healthy


def test_a_share_that_is_not_whole_is_a_note() -> None:
    look = MemberHealthSnapshot(
        "registered", "connected", 1, 1, "incomplete", 2, 1, {f"t/{n}": "another holds it" for n in range(9)}
    )
    notes = judged(look).notes
    assert "9 partitions of its assignment are not read: t/0: another holds it; " in notes[0]
    assert "t/5" not in notes[0]
    assert "1 partition of its assignment is not fetched yet" in notes[1]


def test_a_process_is_as_healthy_as_its_worst_member_and_shows_it_first() -> None:
    answer = process_health(7, [judged()] * 80 + [judged(None)])
    assert (answer["healthy"], answer["alive"]) == (False, False)
    assert len(answer["members"]) == MEMBERS_SHOWN_MAX
    assert answer["members"][0]["problems"]
    assert answer["members_omitted"] == 81 - MEMBERS_SHOWN_MAX


def test_long_words_are_cut() -> None:
    [member] = process_health(7, [judged(failure="x" * 10_000)])["members"]
    assert len(member["problems"][0]) < 600


# --- a member's life ----------------------------------------------------------------------------------------------


def test_a_member_tells_what_it_is_doing(
    world: FakeEnvironment, member: ZookeeperConsumerConnector, place: Path
) -> None:
    answer, told = health(place)
    assert (answer["healthy"], answer["alive"], answer["pid"]) == (False, True, os.getpid())
    assert told["problems"] == [NOT_JOINED]
    [stream] = member.create_message_streams({TOPIC: 1})[TOPIC]
    wait_until(lambda: health(place)[1]["partitions_fetching"] == 2, "both are fetched")
    answer, told = health(place)
    assert answer["healthy"]
    assert told["lease_ms_left"] > 0
    assert (told["member"], told["group"], told["partitions_owned"]) == ("g_a", "g", 2)
    assert (told["membership"], told["session"], told["rebalance"]) == ("registered", "connected", "stable")
    assert told["session_id"] == f"{member.store.session_id:#x}"
    assert told["last_record_ms_ago"] is None, "no records is no problem"
    world.cluster.append(TOPIC, 0, [b"1"])
    take(stream, 1)
    assert 0 <= health(place)[1]["last_record_ms_ago"] < 5_000
    assert health(place)[1]["counters"] == member.counters
    wait_until(lambda: health(place)[1]["lag_seconds"] is not None, "a broker has answered for both")
    report = health(place)[1]
    assert 0 <= report["lag_seconds"] < 60, "not the age of a record of 1970"
    assert (report["lag_timestamp_type"], report["partitions_lag_seconds_not_known"]) == ("CreateTime", 0)


def test_the_lag_of_a_member_in_seconds_is_null_if_a_partition_may_have_a_larger_one() -> None:
    known = PartitionLagTime(KnownLagTime(4_000, 0, TimestampKind.CREATE_TIME), CatchUp(LagTrend.CATCHING_UP, 7_000))
    caught_up = PartitionLagTime(CaughtUp(), ALREADY_CAUGHT_UP)
    unknown = PartitionLagTime(UnknownLagTime("why"), UNKNOWN_CATCH_UP)
    names = ("lag_seconds", "lag_seconds_at_least", "partitions_lag_seconds_not_known", "caught_up_in_seconds")
    for times, values in (
        ((known, caught_up), (4, None, 0, 7)),
        ((known, unknown), (None, 4, 1, None)),
        ((caught_up,), (0, None, 0, 0)),
        ((caught_up, unknown), (None, None, 1, None)),
        ((), (None, None, 0, None)),
    ):
        report = replace(judged(), lag_times=times).as_json()
        assert tuple(report[name] for name in names) == values, times


def test_a_member_without_zookeeper_is_alive_and_unhealthy_until_it_is_back(
    world: FakeEnvironment, connect: MakeConnector, place: Path
) -> None:
    world.create_topic(TOPIC)
    connector = connect(
        group_id="g", health_socket=str(place), zookeeper_session_timeout_ms=SHORT_SESSION_MS, consumer_timeout_ms=50
    )
    connector.create_message_streams({TOPIC: 1})
    wait_until(healthy_now(place), "it is healthy")
    world.zookeeper.disconnect(world.store_of(connector))
    wait_until(lambda: not query_health(place, 3_000)["healthy"], "it is not")
    answer, told = health(place)
    assert answer["alive"]
    assert any("no connection to ZooKeeper" in words for words in told["problems"])
    world.zookeeper.reconnect(world.store_of(connector))
    wait_until(healthy_now(place), "it is healthy again")


def test_a_member_that_an_error_ended_is_neither_healthy_nor_alive(
    member: ZookeeperConsumerConnector, place: Path
) -> None:
    member.create_message_streams({TOPIC: 1})
    member._member.membership.thread_died("some-thread", ValueError("it broke"))
    answer, told = health(place)
    assert (answer["healthy"], answer["alive"]) == (False, False)
    assert "some-thread" in told["problems"][0]
    assert "it broke" in told["problems"][0]


def test_a_control_thread_that_hangs_is_told_and_holds_no_supervisor_up(
    member: ZookeeperConsumerConnector, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SNAPSHOT_TIMEOUT_MS", 100)
    hang = threading.Event()
    member._member.membership.event_loop.call_soon(lambda: hang.wait(20) and None)  # type: ignore[func-returns-value]
    try:
        for _ in range(3):
            answer, told = health(place)
            assert (answer["healthy"], answer["alive"]) == (False, False)
            assert "the control thread did not answer within" in told["problems"][0]
    finally:
        hang.set()
    wait_until(lambda: query_health(place, 3_000)["alive"], "it answers again")


def test_connectors_of_one_process_share_a_socket_and_the_last_one_removes_it(
    world: FakeEnvironment, connect: MakeConnector, place: Path
) -> None:
    world.create_topic(TOPIC, 2)
    connectors = [connect(group_id="g", consumer_id=name, health_socket=str(place)) for name in "ab"]
    assert [each["member"] for each in query_health(place, 3_000)["members"]] == ["g_a", "g_b"]
    assert [name for name in live_threads() if name == "zkconsumer-health"] == ["zkconsumer-health"]
    connectors[0].close()
    assert [each["member"] for each in query_health(place, 3_000)["members"]] == ["g_b"]
    connectors[1].close()
    assert not place.exists()
    assert "zkconsumer-health" not in live_threads()
    with pytest.raises(HealthUnavailable, match="No such file"):
        query_health(place, 100)


def test_without_the_setting_nothing_listens(world: FakeEnvironment, connect: MakeConnector) -> None:
    connect(group_id="g")
    assert "zkconsumer-health" not in live_threads()


def test_a_connector_that_cannot_connect_removes_its_socket(place: Path) -> None:
    config = ConsumerConfig(
        group_id="g", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms=20, health_socket=str(place)
    )
    with pytest.raises(Exception, match="no session"):
        ZookeeperConsumerConnector(config)
    assert not place.exists()
    assert live_threads() == []


def test_a_forked_child_answers_nothing_and_leaves_the_socket_to_its_parent(
    member: ZookeeperConsumerConnector, place: Path
) -> None:
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writable, str(len(server_module._servers)).encode())
            member.close()
        finally:
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as told:
        assert run_in_thread(told.read)() == b"0"
    os.waitpid(child, 0)
    assert query_health(place, 3_000)["pid"] == os.getpid()


# --- whoever asks -------------------------------------------------------------------------------------------------


def test_only_the_user_may_open_it(member: ZookeeperConsumerConnector, place: Path) -> None:
    assert stat.S_IMODE(place.lstat().st_mode) == 0o600


def test_garbage_is_not_read_and_the_answer_comes_all_the_same(member: ZookeeperConsumerConnector, place: Path) -> None:
    for garbage in (b"\0" * 60_000, b"GET / HTTP/1.1\r\n\r\n", b"\xff"):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(5)
            asking.connect(str(place))
            with contextlib.suppress(BrokenPipeError):  # it may have been answered before
                asking.sendall(garbage)
            heard = b""
            while more := asking.recv(65_536):
                heard += more
        assert json.loads(heard)["alive"] is True


class SocketOfALateSender(socket.socket):
    """The server's end of a connection whose other end sends once more after each receive."""

    other: socket.socket

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        try:
            return super().recv(bufsize, flags)
        finally:
            with contextlib.suppress(BrokenPipeError):
                self.other.sendall(b"late")


def test_garbage_that_arrives_last_does_not_reset_the_connection(
    member: ZookeeperConsumerConnector, place: Path
) -> None:
    [server] = server_module._servers.values()
    ours, other = socket.socketpair()
    with SocketOfALateSender(fileno=ours.detach()) as connection, other:
        connection.other = other
        other.sendall(b"early")
        other.settimeout(5)
        server._send_report(connection)
        connection.close()
        with other.makefile("rb") as heard:
            assert json.loads(heard.read())["alive"] is True


def test_who_connects_and_says_nothing_or_goes_at_once_holds_nobody_up(
    member: ZookeeperConsumerConnector, place: Path
) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(10)]
    for each in silent:
        each.settimeout(5)
        each.connect(str(place))
    for _ in range(50):
        with socket.socket(socket.AF_UNIX) as gone:
            gone.settimeout(5)
            gone.connect(str(place))
    assert query_health(place, 3_000)["alive"]
    for each in silent:
        each.close()


def test_a_flood_of_questions_is_one_look(
    member: ZookeeperConsumerConnector, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert member._health is not None
    member._health._answered_at_ms = -60_000
    monkeypatch.setattr(server_module, "CACHED_ANSWER_MAX_AGE_MS", 60_000)
    looks: list[None] = []
    begin = member._health_source.request_snapshot
    monkeypatch.setattr(member._health_source, "request_snapshot", lambda: (looks.append(None), begin()))
    for _ in range(100):
        query_health(place, 3_000)
    assert len(looks) == 1


def test_a_process_with_thousands_of_descriptors_answers_too(
    world: FakeEnvironment, connect: MakeConnector, place: Path
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4_096, limits[1]), limits[1]))
    many: list[int] = []
    try:
        while not many or many[-1] < 1_100:
            many.append(os.open(os.devnull, os.O_RDONLY))
        connector = connect(group_id="g", health_socket=str(place))
        assert query_health(place, 3_000)["alive"]
        connector.close()
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# --- where --------------------------------------------------------------------------------------------------------


def test_what_a_killed_process_left_is_replaced(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))
        dead.listen()
    with open_listening_socket(place):
        pass


def test_a_socket_that_somebody_answers_is_not_taken_away(place: Path) -> None:
    with open_listening_socket(place), pytest.raises(UsageError, match="another process answers there"):
        open_listening_socket(place)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_socket_is_not_touched(place: Path, make: Callable[[Path], None]) -> None:
    make(place)
    with pytest.raises(UsageError, match="another file exists there"):
        open_listening_socket(place)
    assert place.is_symlink() or place.exists()


def test_a_socket_in_its_place_is_not_removed_at_the_end(member: ZookeeperConsumerConnector, place: Path) -> None:
    place.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place))
        member.close()
        assert place.exists()


def test_the_path_may_hold_the_process_id_and_must_fit(tmp_path: Path) -> None:
    assert socket_path("/run/x/{pid}.sock") == Path(f"/run/x/{os.getpid()}.sock")
    with pytest.raises(UsageError, match="has at most 107 bytes"):
        socket_path("/" + "x" * 200)
    with pytest.raises(UsageError, match="cannot be created: No such file"):
        open_listening_socket(tmp_path / "no" / "such.sock")


@pytest.mark.parametrize("value", ["relative/path", "/run/", "", "Auto", "/a\0b"])
def test_a_setting_that_is_no_path_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfigException, match="absolute path"):
        ConsumerConfig(group_id="g", zookeeper_connect="h:1", health_socket=value)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "zkconsumer"


def test_auto_is_found_by_the_process_id(world: FakeEnvironment, connect: MakeConnector, runtime: Path) -> None:
    connector = connect(group_id="g", health_socket="auto")
    assert stat.S_IMODE(runtime.lstat().st_mode) == 0o700
    assert query_process_health(os.getpid(), 3_000)["pid"] == os.getpid()
    connector.close()
    with pytest.raises(HealthUnavailable, match=f"no {os.getpid()}.sock exists in {runtime}"):
        query_process_health(os.getpid(), 3_000)


def test_a_folder_that_others_may_write_is_not_used(runtime: Path) -> None:
    runtime.mkdir()
    runtime.chmod(0o777)
    with pytest.raises(UsageError, match="no other user may write"):
        socket_path("auto")
    runtime.rmdir()
    runtime.symlink_to("/tmp")
    with pytest.raises(UsageError, match="must be a folder"):
        socket_path("auto")


def test_another_process_in_the_place_of_the_asked_one_is_not_believed(runtime: Path) -> None:
    parent = os.getppid()
    runtime.mkdir(0o700)
    if os.stat(f"/proc/{parent}").st_uid != os.getuid():
        pytest.skip("the parent is another user's")
    with (
        open_listening_socket(runtime / f"{parent}.sock"),
        pytest.raises(HealthUnavailable, match=f"served by process {os.getpid()}"),
    ):
        query_process_health(parent, 1_000)


def test_another_users_socket_is_not_believed(place: Path) -> None:
    with open_listening_socket(place), pytest.raises(HealthUnavailable, match="its answer is not trusted"):
        query_health(place, 1_000, owner=os.getuid() + 1)


def test_a_process_that_is_not_there_is_told() -> None:
    with pytest.raises(HealthUnavailable, match="process 4194304 does not exist"):
        query_process_health(4_194_304, 100)


# --- answers that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "not a health report"),
        (b"hello", "not a health report"),
        (b"[]", "not a health report"),
        (b'{"healthy": 1, "alive": true, "members": []}', "not a health report"),
        (b'{"healthy": true, "alive": true}', "not a health report"),
        (b"x" * (ANSWER_BYTES_MAX + 65_536), "more than"),
        (None, "no complete answer within 200 ms"),
    ],
)
def test_what_answers_something_else_is_no_member(place: Path, answer: bytes | None, says: str) -> None:
    with open_listening_socket(place) as listening:
        listening.setblocking(True)
        taken: list[socket.socket] = []

        def serve() -> None:
            asking, _ = listening.accept()
            taken.append(asking)
            if answer is not None:
                try:
                    asking.sendall(answer)
                except OSError:
                    return
                asking.close()

        join = run_in_thread(serve)
        with pytest.raises(HealthUnavailable, match=says):
            query_health(place, 200 if answer is None else 5_000)
        join()
        for each in taken:
            each.close()


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_tells_by_its_exit_code(member: ZookeeperConsumerConnector, place: Path) -> None:
    done = command("--socket", str(place))
    assert done.exit_code == 1
    assert json.loads(done.stdout)["healthy"] is False
    assert done.stderr == f"zkconsumer: g_a: {NOT_JOINED}\n"
    assert command("--socket", str(place), "--alive").exit_code == 0
    member.create_message_streams({TOPIC: 1})
    done = command("--socket", str(place), "--wait-ms", "5000", "--quiet")
    assert (done.exit_code, done.output) == (0, "")


def test_nothing_that_answers_is_exit_code_4(place: Path) -> None:
    done = command("--socket", str(place))
    assert done.exit_code == 4
    assert "No such file" in done.stderr


@pytest.mark.parametrize("words", [[], ["--pid", "1", "--socket", "/x"], ["--pid", "0"], ["--pid", "x"]])
def test_a_wrong_call_is_exit_code_2(words: list[str]) -> None:
    assert command(*words).exit_code == 2
