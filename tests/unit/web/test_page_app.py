"""The page's application on a cluster in memory: addresses, documents, events, the token."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest
from click.testing import CliRunner

from bridge.commands.web import web
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.web import page_app
from bridge.web.event_stream import VIEWERS_MAX
from bridge.web.page_app import RequestGuard, static_files
from bridge.web.request_checks import SECURITY_HEADERS
from tests.in_memory_fixtures import MakeConnector
from tests.web_fixtures import HOST, REMOTE_PAGE, StreamViewer, dependencies_of, page_of, request
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.cli.command_hints import complete_commands_in_json
from zkconsumer.cli.main import main
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

REMOTE = {"host": "10.0.0.5:8650"}
TIMES = {"at_ms", "interval_ms", "largest_lag_seconds", "largest_lag_seconds_known", "trend", "caught_up_in_seconds"}
ROW_TIMES = {"lag_seconds", "lag_time", "trend", "caught_up_in_seconds"}
"""They differ between two reads, and a read that follows another one knows more."""


@pytest.fixture
def groups(world: FakeEnvironment, connect: MakeConnector) -> FakeEnvironment:
    """``reading`` with a member, ``stopped`` with offsets only."""
    world.create_topic("clicks", 4)
    for partition in range(4):
        world.cluster.append("clicks", partition, [b"x"] * 10)
        world.zookeeper.ensure(paths.offset("stopped", TopicPartition("clicks", partition)), b"%d" % partition)
    world.zookeeper.ensure(paths.ids("stopped"))
    world.zookeeper.ensure(paths.owners_of_topic("stopped", "clicks"))
    connect(group_id="reading", consumer_id="anna", auto_commit_enable=False).create_message_streams({"clicks": 1})
    return world


def printed(world: FakeEnvironment, *words: str) -> Any:
    """The document that a command prints."""
    result = CliRunner().invoke(main, [*words, "-o", "json", "--zookeeper", ADDRESS], obj=dependencies_of(world))
    return json.loads(result.stdout)


def without_times(document: Any) -> Any:
    """The document without what depends on the moment of the read."""
    rows = {
        key: [{name: value for name, value in row.items() if name not in ROW_TIMES} for row in document[key]]
        for key in ("rows", "partitions")
        if isinstance(document.get(key), list)
    }
    return {key: value for key, value in document.items() if key not in TIMES} | rows


def web_context(world: FakeEnvironment) -> click.Context:
    """The context of ``zkconsumer web --zookeeper ADDRESS``."""
    root = main.make_context("zkconsumer", ["web"], obj=dependencies_of(world))
    return web.make_context("web", ["--zookeeper", ADDRESS], parent=root)


@pytest.mark.parametrize(
    ("address", "command"),
    [
        ("/", ("groups", "list")),
        ("/group?name=stopped", ("groups", "describe", "stopped")),
        ("/group?name=reading", ("groups", "describe", "reading")),
        ("/group/lag?name=stopped", ("lag", "stopped")),
        ("/group/move?name=stopped", ("migrate", "status", "stopped")),
        ("/group/evidence?name=stopped", ("groups", "doctor", "stopped", "--interval", "5")),
    ],
)
def test_an_address_answers_programs_with_the_document_of_the_command(
    groups: FakeEnvironment, address: str, command: tuple[str, ...]
) -> None:
    context = web_context(groups)
    with page_of(groups, complete=lambda document: complete_commands_in_json(document, context)) as page:
        answer = page.get(address, accept="application/json")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["age"]) < 60
    assert without_times(answer.document) == without_times(printed(groups, *command))


def test_verify_is_the_document_of_the_command(
    groups: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AdminSession, "max_session_timeout_ms", lambda _: 1)  # it waits so long for old members
    plan = str(tmp_path / "stopped.plan")
    run = CliRunner().invoke
    for words in (
        ["plan", "stopped", "-f", plan, "--offset-convention", "next", "--no-acl-fence"],
        ["apply", plan, "--execute", "--stop-after", "fenced"],
    ):
        done = run(main, ["migrate", *words, "--zookeeper", ADDRESS], obj=dependencies_of(groups))
        assert done.exit_code == 0, done.output
    context = web_context(groups)
    with page_of(groups, complete=lambda document: complete_commands_in_json(document, context)) as page:
        assert page.get("/group/verify?name=stopped").document == printed(groups, "migrate", "verify", "stopped")
        move = page.get("/group/move?name=stopped&format=json").document
        assert without_times(move) == without_times(printed(groups, "migrate", "status", "stopped"))
        assert move["phase"] == "fenced"
        assert page.get("/group/verify?name=reading").status == 404


def test_a_browser_gets_the_page_and_a_program_the_document(groups: FakeEnvironment) -> None:
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    with page_of(groups) as page:
        for address in ("/", "/group?name=a", "/group/lag?name=a", "/group/move?name=a", "/group/evidence?name=a"):
            answer = page.get(address, accept=browser)
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert b"<main" in answer.body
        assert page.get("/?format=json", accept=browser).document["schema"] == "zkconsumer/groups-list/1"
        assert page.get("/group?format=json").status == 400


def test_every_answer_has_the_security_headers(groups: FakeEnvironment) -> None:
    with page_of(groups) as page:
        for answer in (
            page.get("/"),
            page.get("/static/page.css"),
            page.get("/nowhere"),
            page.get("/", "POST"),
            page.get("/", host="evil.example"),
        ):
            for name, value in SECURITY_HEADERS.items():
                assert answer.headers[name.lower()] == value


def test_no_file_of_the_page_has_inline_code_or_another_host() -> None:
    for name, body in static_files().items():
        if name.startswith("vendor/"):
            continue
        text = body.decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "innerHTML" not in text
        assert "style=" not in text
        assert " onclick=" not in text
        if name.endswith(".html"):
            assert text.count("<script") == text.count("<script src=") + text.count('<script type="module" src=')
            assert "<style" not in text


def test_the_vendored_graph_has_its_licence() -> None:
    files = static_files()
    assert b"Copyright (c)" in files["vendor/uplot/LICENSE"]
    assert b"MIT Licensed" in files["vendor/uplot/uPlot.esm.js"]
    assert b"1.6.32" in files["vendor/uplot/README.md"]


@pytest.mark.parametrize("path", ["../page_app.py", "%2e%2e/page_app.py", "page.html", "sign-in.html", "", "none.js"])
def test_only_files_of_the_page_are_served(groups: FakeEnvironment, path: str) -> None:
    with page_of(groups) as page:
        assert page.get(f"/static/{path}").status == 404


def test_a_group_that_does_not_exist(groups: FakeEnvironment) -> None:
    name = "no such/group?&ü"
    with page_of(groups) as page:
        answer = page.get(f"/group?name={quote('nosuch')}&format=json")
        assert (answer.status, answer.document) == (404, {"error": "The consumer group 'nosuch' does not exist."})
        assert page.get(f"/group?name={quote(name)}&format=json").status in (404, 503)


# --- the token --------------------------------------------------------------------------------------------------


@pytest.fixture
def no_read_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request waits for a read of its own, as the first one after a long time does."""
    # Not 0: a read may end in the millisecond in which the request begins.
    monkeypatch.setattr(page_app, "FRESH_MS", dict.fromkeys(page_app.FRESH_MS, -1))


@pytest.mark.usefixtures("no_read_is_fresh")
def test_an_old_error_is_no_answer(groups: FakeEnvironment) -> None:
    is_down = True

    def open_session() -> AdminSession:
        if is_down:
            raise ZkTimeoutException("ZooKeeper does not answer")
        return AdminSession.open(ADDRESS, None, dependencies_of(groups))

    with page_of(groups, open_session=open_session) as page:
        assert page.get("/group/lag?name=stopped&format=json").status == 503
        is_down = False
        assert page.get("/group/lag?name=stopped&format=json").status == 200


@pytest.mark.usefixtures("no_read_is_fresh")
def test_a_group_that_was_created_meanwhile_exists(groups: FakeEnvironment) -> None:
    with page_of(groups) as page:
        assert page.get("/group/lag?name=late&format=json").status == 404
        groups.zookeeper.ensure(paths.ids("late"))
        groups.zookeeper.ensure(paths.offset("late", TopicPartition("clicks", 0)), b"1")
        assert page.get("/group/lag?name=late&format=json").status == 200


def test_half_of_a_surrogate_pair_in_a_registration_is_answered(groups: FakeEnvironment) -> None:
    registration = {"version": 1, "subscription": {"a\ud800": 1}, "pattern": "white_list", "timestamp": "1"}
    groups.zookeeper.ensure(paths.registration("stopped", "stopped_x"), json.dumps(registration).encode())
    with page_of(groups) as page:
        [member] = page.get("/group?name=stopped&format=json").document["members"]
        assert "a\ud800" in member["problem"]
        [finding, *_] = page.get("/group/evidence?name=stopped&format=json").document["findings"]
        assert finding["name"] == "registration-not-evaluable"


def test_a_coordinator_group_may_have_a_name_that_zookeeper_cannot_have(groups: FakeEnvironment) -> None:
    groups.cluster.set_coordinator_members("app:v1", True)
    with page_of(groups) as page:
        listed = page.get("/?format=json").document["groups"]
        assert [one["group"] for one in listed] == ["app:v1", "reading", "stopped"]
        found = {path: page.get(f"/group{path}?name=app:v1&format=json").status for path in ("", "/lag")}
        assert found == {"": 200, "/lag": 200}
        for path in ("/move", "/evidence", "/verify"):  # they are about ZooKeeper
            assert page.get(f"/group{path}?name=app:v1&format=json").status == 404


def test_without_the_token_nothing_is_answered(groups: FakeEnvironment) -> None:
    with page_of(groups, REMOTE_PAGE) as page:
        for address in ("/", "/group?name=reading", "/about", "/events/list", "/events/group?name=reading",
                        "/static/main.js", "/group/verify?name=stopped", "/nowhere", "/session"):  # fmt: skip
            answer = page.get(address, **REMOTE)
            assert answer.status in (401, 405), address
            assert b"reading" not in answer.body
        browser = page.get("/", accept="text/html", **REMOTE)
        assert (browser.status, browser.headers["location"]) == (303, "/sign-in")
        assert page.get("/sign-in", **REMOTE).status == 200
        assert page.get("/", authorization="Bearer wrong", **REMOTE).status == 401
        assert page.get("/", cookie=f"{REMOTE_PAGE.cookie_name}=wrong", **REMOTE).status == 401


def test_a_browser_exchanges_the_token_once(groups: FakeEnvironment) -> None:
    token = REMOTE_PAGE.token
    assert token is not None
    with page_of(groups, REMOTE_PAGE) as page:
        wrong = page.get("/session", "POST", b"token=wrong", **REMOTE)
        assert (wrong.status, wrong.headers["location"]) == (303, "/sign-in?wrong")
        assert "set-cookie" not in wrong.headers
        right = page.get("/session", "POST", f"token={quote(token)}".encode(), **REMOTE)
        assert (right.status, right.headers["location"]) == (303, "/")
        cookie, *flags = right.headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(flags)
        assert token not in cookie
        assert page.get("/?format=json", cookie=cookie, **REMOTE).status == 200
        assert page.get("/?format=json", authorization=f"Bearer {token}", **REMOTE).status == 200
        assert page.get(f"/?token={quote(token)}", cookie=cookie, **REMOTE).status == 400
        assert page.get("/session", "POST", b"token=" + b"x" * 5000, **REMOTE).status == 413


def test_guessing_is_stopped(groups: FakeEnvironment) -> None:
    token = REMOTE_PAGE.token or ""
    with page_of(groups, REMOTE_PAGE) as page:
        for _ in range(10):
            page.get("/session", "POST", b"token=wrong", **REMOTE)
        assert page.get("/session", "POST", f"token={quote(token)}".encode(), **REMOTE).status == 429


def test_on_loopback_there_is_no_sign_in(groups: FakeEnvironment) -> None:
    with page_of(groups) as page:
        assert page.get("/sign-in").status == 404
        assert page.get("/session", "POST", b"token=x").status == 404


# --- events -----------------------------------------------------------------------------------------------------


def test_a_viewer_sees_the_group_and_what_changes(groups: FakeEnvironment, connect: MakeConnector) -> None:
    async def watch(app: RequestGuard) -> None:
        viewer = StreamViewer(app, "/events/group?name=reading&panel=members")
        page = (await viewer.wait_for("group"))["document"]
        assert [one["id"] for one in page["all_members"]] == ["reading_anna"]
        await asyncio.to_thread(
            lambda: connect(group_id="reading", consumer_id="bert").create_message_streams({"clicks": 1})
        )
        patch = await viewer.wait_for("group-patch", lambda one: len(one["document"]["all_members"]) == 2)
        assert "rows" not in patch["document"]
        assert {row["topic"] for row in patch["changed"]} <= {"clicks"}
        texts = await viewer.wait_for("events", lambda some: any("bert" in one["text"] for one in some))
        assert any(one["text"].startswith("reading_bert (") and one["text"].endswith(" joined") for one in texts)
        await viewer.leave()

    with page_of(groups) as page:
        page.run(lambda: watch(page.app))
        assert page.hub.viewers == 0


def test_the_list_has_the_lag_of_each_group(groups: FakeEnvironment) -> None:
    async def watch(app: RequestGuard) -> Any:
        viewer = StreamViewer(app, "/events/list")
        found = await viewer.wait_for(
            "list", lambda data: any(one["lag"] is not None for one in data["document"]["groups"])
        )
        await viewer.leave()
        return found["document"]["groups"]

    with page_of(groups) as page:
        rows = {one["group"]: one["lag"] for one in page.run(lambda: watch(page.app))}
    assert rows["stopped"]["known"] == printed(groups, "lag", "stopped")["total"] == 34
    assert rows["reading"]["known"] is None, "it has no offset: not 0"


def test_the_number_of_viewers_is_bounded(groups: FakeEnvironment) -> None:
    async def watch(app: RequestGuard) -> None:
        viewers = [StreamViewer(app, "/events/list") for _ in range(VIEWERS_MAX)]
        for viewer in viewers:
            await viewer.wait_for("list")
        refused = await request(app, "/events/list")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "10"
        await viewers[0].leave()
        again = StreamViewer(app, "/events/list")
        await again.wait_for("list")
        for viewer in [*viewers[1:], again]:
            await viewer.leave()

    with page_of(groups) as page:
        page.run(lambda: watch(page.app))
        assert page.hub.viewers == 0


def test_a_viewer_that_takes_nothing_is_closed(groups: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.web.event_stream.EventStream.__init__.__defaults__", (0.2,))

    async def watch(app: RequestGuard) -> None:
        viewer = StreamViewer(app, "/events/group?name=reading")
        await viewer.wait_for("group")
        viewer.reads.clear()
        await viewer.ended()

    with page_of(groups) as page:
        page.run(lambda: watch(page.app))
        assert page.hub.viewers == 0


def test_the_server_can_stop_while_pages_are_open(groups: FakeEnvironment) -> None:
    async def watch(page: Any) -> None:
        viewer = StreamViewer(page.app, "/events/list")
        await viewer.wait_for("list")
        page.hub.close()
        await viewer.ended()
        assert (await request(page.app, "/events/list")).status == 503

    with page_of(groups) as page:
        page.run(lambda: watch(page))


def test_a_websocket_is_refused(groups: FakeEnvironment) -> None:
    sent: list[Any] = []

    async def connect_websocket(app: RequestGuard) -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError("nothing is read")

        await app({"type": "websocket", "headers": [(b"host", HOST.encode())]}, receive, send)

    with page_of(groups) as page:
        page.run(lambda: connect_websocket(page.app))
    assert sent == [{"type": "websocket.close", "code": 1008}]
