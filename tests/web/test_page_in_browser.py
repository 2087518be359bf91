"""The page in a real browser: on a real ZooKeeper, a broker, Scala members and ours; and the demo's."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox_fixtures import require_releases, require_zookeeper
from tests.web.browser_fixtures import ALL_VIEWS, ShownPage, axe, browser, shots, web_command
from tests.web.page_servers import PARTITIONS, RECORDS, RELEASE, PageServers, move_texts, page_servers, page_shows
from tests.web.stored_groups import STORED_OFFSET, make_groups
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.testing.sandbox.waiting import wait_until

__all__ = ["axe", "browser", "shots"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

MANY_GROUPS, MANY_PARTITIONS = 500, 20
LONG_MS = 120_000


@pytest.fixture(scope="module")
def servers() -> Iterator[PageServers]:
    """Shared; a test that stops a server starts it again."""
    require_zookeeper()
    require_releases(RELEASE)
    with page_servers() as made:
        yield made


@pytest.fixture
def page(servers: PageServers, browser: Any, axe: str, shots: Path) -> Iterator[ShownPage]:
    """A new page; at the end its console has no error."""
    shown = ShownPage(browser, servers.address, axe, shots)
    try:
        yield shown
        assert shown.errors == []
    finally:
        shown.close()


def test_a_real_group_is_shown_while_it_changes(servers: PageServers, page: ShownPage) -> None:
    group, topic = servers.names()
    scala = servers.scala_member(group, topic)
    page.open("/")
    page.wait_for_text(group)
    page.check("list")
    page.page.get_by_role("link", name=group).click()
    page.wait_until("document.querySelectorAll('.mark.scala').length === 1")

    with servers.our_member(group, topic):
        page.wait_until("document.querySelectorAll('.mark.zkconsumer').length === 1")
        page.wait_until("document.querySelector('.events').textContent.includes('2 partitions: ')")
        page.check("group")

        document = servers.document("groups", "describe", group)
        owners = {(row["partition"], row["consumer_id"]) for row in document["rows"]}
        shown = page.page.evaluate("fetch(location.href + '&format=json').then(one => one.json())")
        assert {(row["partition"], row["consumer_id"]) for row in shown["rows"]} == owners
        for _, owner in owners:
            assert owner in page.text()
    page.wait_until("document.querySelectorAll('.mark.zkconsumer').length === 0")

    scala.stop()
    for partition in range(PARTITIONS):
        servers.sandbox.produce(topic, partition, 10 * (partition + 1))
    page.page.get_by_role("link", name="Lag").click()
    page.wait_until("document.querySelector('.facts').textContent.includes('Lag100')")
    assert servers.document("lag", group)["total"] == 100
    page.check("lag")
    assert page.errors == []

    servers.sandbox.zookeeper.stop()
    page.wait_until("document.querySelector('.trouble') !== null")
    assert "Lag\n100" in page.text(), "what was read stays"
    page.check("zookeeper-stopped")
    servers.sandbox.zookeeper.start()
    page.wait_until("document.querySelector('.trouble') === null", LONG_MS)


def test_a_migration_is_shown_from_the_plan_to_the_switch_and_back(
    servers: PageServers, page: ShownPage, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    group, topic = servers.names()
    servers.scala_member(group, topic).stop()
    page.open(f"/group/move?name={group}")
    page.wait_for_text("No migration has begun")

    servers.run("migrate", "plan", group, "-f", plan, "--offset-convention", "next")
    servers.run("migrate", "apply", plan, "--execute", "--stop-after", "fenced")
    for phase, authority, words in (
        ("fenced", "zookeeper", ("apply", plan, "--execute", "--stop-after", "copied")),
        ("copied", "zookeeper", ("apply", plan, "--execute")),
        ("switched", "kafka", ("rollback", group, "--execute")),
    ):
        page_shows(page, phase, authority)
        document = servers.document("migrate", "status", group)
        assert (document["phase"], document["authority"]) == (phase, authority)
        for step in document["next_steps"]:
            page.wait_for_text(step)
        if phase == "copied":
            same = f"{PARTITIONS} partitions with an offset in both stores, 0 of them different."
            page.wait_for_text(same)
        page.check(f"move-{phase}")
        servers.run("migrate", *words)
    page.wait_until("document.querySelector('.facts').textContent.includes('Migrationundone')")
    document = servers.document("migrate", "status", group)
    assert (document["phase"], document["authority"]) == ("undone", "zookeeper")
    page.check("move-undone")


def test_a_broker_that_is_gone_leaves_the_other_partitions_on_the_page(servers: PageServers, page: ShownPage) -> None:
    group, topic = "half", "on-two-brokers"
    sandbox = servers.sandbox
    second = sandbox.start_broker(RELEASE)
    try:
        sandbox.create_topic(topic, 2, replicas={0: [0], 1: [second.broker_id]})
        for partition in range(2):
            sandbox.produce(topic, partition, RECORDS)
        with AdminSession.open(sandbox.zookeeper_connect) as session:
            make_groups(session, topic, {group: 2})
        page.open(f"/group/lag?name={group}")
        page.wait_until(f"document.querySelector('.facts').textContent.includes('Lag{2 * (RECORDS - STORED_OFFSET)}')")
    finally:
        second.kill()
        sandbox.brokers.remove(second)
    page.wait_until("document.querySelector('.trouble, .facts .unknown') !== null", LONG_MS)
    found = servers.document("lag", group)
    [known] = [row for row in found["partitions"] if row["lag"] is not None]
    assert known["lag"] == RECORDS - STORED_OFFSET
    page.wait_until(f"document.querySelector('main').textContent.includes('{known['lag']}')")
    page.check("broker-gone")


def test_five_hundred_groups_with_ten_thousand_partitions_are_listed_and_found(
    servers: PageServers, page: ShownPage
) -> None:
    topic, last = "many", f"group-{MANY_GROUPS - 1:04d}"
    servers.sandbox.create_topic(topic, MANY_PARTITIONS)
    with AdminSession.open(servers.sandbox.zookeeper_connect) as session:
        make_groups(session, topic, {f"group-{number:04d}": MANY_PARTITIONS for number in range(MANY_GROUPS)})
    groups = servers.document("groups", "list")["groups"]
    assert len(groups) >= MANY_GROUPS
    page.open("/")
    page.wait_for_text(f"{len(groups)} groups")
    page.page.get_by_label("Search").fill(last)
    page.wait_for_text(last)
    page.wait_until("document.querySelectorAll('main tbody tr').length === 1")
    page.check("many-groups")
    page.page.get_by_role("link", name=last).click()
    page.wait_until("location.pathname === '/group'")
    page.wait_for_text(f"{MANY_PARTITIONS} partitions")


def test_on_another_address_a_browser_needs_the_token(
    servers: PageServers, browser: Any, axe: str, shots: Path
) -> None:
    group = "with-token"
    with AdminSession.open(servers.sandbox.zookeeper_connect) as session:
        make_groups(session, "tokens", {group: 1})
    words = ("web", "--host", "0.0.0.0", "--port", "0", "--zookeeper", servers.sandbox.zookeeper_connect)
    with web_command(*words) as printed_address:
        port = printed_address.split(":")[2].split("/")[0]
        token = printed_address.partition("#token=")[2]
        local = f"http://127.0.0.1:{port}"
        for path in ("/", f"/group?name={group}", "/events/list", "/about"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(local + path)
            assert refused.value.code == 401
            refused.value.close()
        page = ShownPage(browser, local, axe, shots)
        page.open("/")
        page.page.wait_for_url("**/sign-in")
        page.check("sign-in")
        page.open(f"/sign-in#token={token}")
        page.wait_for_text(group)
        assert token not in page.page.url
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert token not in cookie["value"]
        assert page.errors == []
        page.close()


def test_a_member_that_is_a_spark_query_is_a_kind_of_its_own(servers: PageServers, page: ShownPage) -> None:
    group, topic = servers.names()
    with servers.query(group, topic, "5f1c2d3e") as member:
        page.open(f"/group?name={group}")
        page.wait_until("document.querySelectorAll('.mark.spark').length === 1")
        assert "1 Spark" in page.page.inner_text(".facts")
        assert f"{member} is the Spark query 5f1c2d3e." in page.text()
        page.check("group-spark")


@pytest.mark.nightly
def test_a_group_that_migrates_while_its_members_run_is_shown_in_each_phase(
    servers: PageServers, page: ShownPage, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    group, topic = servers.names()

    def is_as_the_command_prints(phase: str, authority: str) -> bool:
        status = servers.document("migrate", "status", group)
        text = page.page.inner_text("main")
        is_shown = [status["phase"], status["authority"]] == [phase, authority]
        return is_shown and len(status["members"]) == 2 and all(one in text for one in move_texts(status))

    with servers.migrating_members(group, topic, 2):
        stored = dict.fromkeys(range(PARTITIONS), RECORDS)
        wait_until(lambda: servers.sandbox.admin.offsets(group, topic) == stored, "the members committed", LONG_MS)
        page.open(f"/group/move?name={group}")
        page.wait_for_text("No migration has begun")
        servers.run("migrate", "plan", group, "-f", plan, "--strategy", "dual", "--offset-convention", "next")
        for phase in ("armed", "ready", "locked", "copied"):
            servers.run("migrate", "apply", plan, "--execute", "--stop-after", phase)
            page_shows(page, phase, "zookeeper")
            wait_until(lambda at=phase: is_as_the_command_prints(at, "zookeeper"), f"{phase} is shown", LONG_MS)
            page.check(f"dual-{phase}")
        page.wait_for_text(f"{PARTITIONS} partitions with an offset in both stores, 0 of them different.")
        servers.run("migrate", "apply", plan, "--execute")
        page_shows(page, "switched", "kafka")
        wait_until(lambda: is_as_the_command_prints("switched", "kafka"), "the switch is shown", LONG_MS)
        page.check("dual-switched")
        servers.run("migrate", "rollback", group, "--execute")
        page.wait_until("document.querySelector('.facts').textContent.includes('Migrationundone')")
        page.check("dual-undone")


@pytest.mark.nightly
def test_the_keyboard_reaches_everything(servers: PageServers, page: ShownPage) -> None:
    group, topic = servers.names()
    with AdminSession.open(servers.sandbox.zookeeper_connect) as session:
        make_groups(session, topic, {group: 1})
    page.open("/")
    page.wait_for_text(group)
    reached = []
    for _ in range(20):
        page.page.keyboard.press("Tab")
        reached.append(page.page.evaluate("document.activeElement.textContent || document.activeElement.id"))
        if reached[-1] == group:
            break
    assert reached[0] == "Skip to the content"
    assert "search" in reached
    page.page.keyboard.press("Enter")
    page.wait_until("location.pathname === '/group'")
    page.page.go_back()
    page.wait_until("location.pathname === '/'")
    page.wait_for_text(group)


@pytest.mark.nightly
def test_the_demo_shows_every_panel_at_each_width_in_each_theme(browser: Any, axe: str, shots: Path) -> None:
    with web_command("demo", "--web", "--port", "0") as address:
        page = ShownPage(browser, address, axe, shots)
        for name, path, text in (
            ("demo-list", "/", "3 groups"),
            ("demo-group", "/group?name=demo", "demo_anna"),
            ("demo-lag", "/group/lag?name=demo", "clicks"),
            ("demo-move", "/group/move?name=moving", "Must act"),
            ("demo-evidence", "/group/evidence?name=demo", "owned by registered threads"),
        ):
            page.open(path)
            page.wait_for_text(text)
            page.check(name, ALL_VIEWS)
        assert page.errors == []
        page.close()
