"""The page in a real browser: on a real ZooKeeper, a broker, a Scala member and one of ours; and the demo's."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox_fixtures import require_releases
from tests.web.browser_fixtures import START, ShownPage, axe, browser, web_command
from tests.web.stored_groups import STORED_OFFSET, make_groups
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import wait_until

__all__ = ["axe", "browser"]

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(300)]

GROUP, TOPIC, PARTITIONS, RECORDS = "billing", "clicks", 4, 25
MANY_GROUPS, MANY_PARTITIONS = 500, 20
WAIT_MS = 60_000


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go."""
    folder = tmp_path / "screenshots"
    folder.mkdir()
    return folder


@pytest.fixture
def group(sandbox: Sandbox) -> Sandbox:
    """A group with one Scala member, on a real broker."""
    require_releases("1.1.1")
    sandbox.start_zookeeper()
    sandbox.start_broker("1.1.1")
    sandbox.create_topic(TOPIC, PARTITIONS)
    for partition in range(PARTITIONS):
        sandbox.produce(TOPIC, partition, RECORDS)
    settings = {"auto.offset.reset": "smallest", "auto.commit.interval.ms": "500"}
    member = sandbox.start_member("1.1.1", GROUP, {TOPIC: 1}, settings=settings)
    member.wait_delivered(PARTITIONS * RECORDS)
    return sandbox


def our_member(sandbox: Sandbox) -> subprocess.Popen[bytes]:
    words = ["consume", "--zookeeper", sandbox.zookeeper_connect, "--group", GROUP, "--topic", TOPIC]
    return subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.DEVNULL)


def printed(sandbox: Sandbox, *words: str) -> Any:
    """The document that a command prints; the code is 1 if a part of it is not known."""
    command = [sys.executable, "-c", START, *words, "-o", "json", "--zookeeper", sandbox.zookeeper_connect]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_a_real_group_is_shown_while_it_changes(group: Sandbox, browser: Any, axe: str, shots: Path) -> None:
    with web_command("web", "--port", "0", "--zookeeper", group.zookeeper_connect) as address:
        page = ShownPage(browser, address, axe, shots)
        page.open("/")
        page.wait_for_text(GROUP)
        page.check("list")
        page.page.get_by_role("link", name=GROUP).click()
        page.wait_until("document.querySelectorAll('.mark.scala').length === 1")
        page.check("group-scala")

        ours = our_member(group)
        try:
            page.wait_until("document.querySelectorAll('.mark.zkconsumer').length === 1")
            page.wait_until("document.querySelector('.events').textContent.includes('2 partitions: ')")
            page.check("group-both")

            document = printed(group, "groups", "describe", GROUP)
            owners = {(row["partition"], row["consumer_id"]) for row in document["rows"]}
            shown = page.page.evaluate("fetch(location.href + '&format=json').then(one => one.json())")
            assert {(row["partition"], row["consumer_id"]) for row in shown["rows"]} == owners
            for _, owner in owners:
                assert owner in page.text()
        finally:
            ours.terminate()
            ours.wait(60)
        page.wait_until("document.querySelectorAll('.mark.zkconsumer').length === 0")

        group.members[0].stop()
        for partition in range(PARTITIONS):
            group.produce(TOPIC, partition, 10 * (partition + 1))
        page.page.get_by_role("link", name="Lag").click()
        page.wait_until("document.querySelector('.facts').textContent.includes('Lag100')")
        assert printed(group, "lag", GROUP)["total"] == 100
        page.check("lag")
        assert page.errors == []

        group.zookeeper.stop()
        page.wait_until("document.querySelector('.trouble') !== null")
        assert "Lag\n100" in page.text(), "what was read stays"
        page.check("zookeeper-stopped")
        group.zookeeper.start()
        page.wait_until("document.querySelector('.trouble') === null", 120_000)
        assert page.errors == []
        page.close()


def browser_shows(page: ShownPage, phase: str, authority: str) -> None:
    """Wait until the panel of the migration shows this phase as the current one, and this authority."""
    page.wait_until(f"(document.querySelector('.phases [aria-current=step]') || {{}}).textContent === '{phase}'")
    page.wait_until(f"document.querySelector('.plain').textContent.includes('Authority{authority}')")


def test_a_migration_is_shown_from_the_plan_to_the_switch_and_back(
    group: Sandbox, browser: Any, axe: str, shots: Path, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")

    def migrate(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", START, "migrate", *words, "--zookeeper", group.zookeeper_connect],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def status() -> Any:
        return printed(group, "migrate", "status", GROUP)

    with web_command("web", "--port", "0", "--zookeeper", group.zookeeper_connect) as address:
        page = ShownPage(browser, address, axe, shots)
        page.open(f"/group/move?name={GROUP}")
        page.wait_for_text("No migration has begun")
        page.check("not-planned")
        group.members[0].stop()
        stored = dict.fromkeys(range(PARTITIONS), RECORDS)
        wait_until(lambda: group.admin.offsets(GROUP, TOPIC) == stored, "the member has committed", WAIT_MS)

        migrate("plan", GROUP, "-f", plan, "--offset-convention", "next")
        migrate("apply", plan, "--execute", "--stop-after", "fenced")
        for phase, authority, words in (
            ("fenced", "zookeeper", ("apply", plan, "--execute", "--stop-after", "copied")),
            ("copied", "zookeeper", ("apply", plan, "--execute")),
            ("switched", "kafka", ("rollback", GROUP, "--execute")),
        ):
            browser_shows(page, phase, authority)
            document = status()
            assert (document["phase"], document["authority"]) == (phase, authority)
            for step in document["next_steps"]:
                page.wait_for_text(step)
            if phase == "copied":
                same = f"{PARTITIONS} partitions with an offset in both stores, 0 of them different."
                page.wait_for_text(same)
            page.check(phase)
            migrate(*words)
        page.wait_until("document.querySelector('.facts').textContent.includes('Migrationundone')")
        assert (status()["phase"], status()["authority"]) == ("undone", "zookeeper")
        page.check("back")
        assert page.errors == []
        page.close()


def test_a_broker_that_is_gone_leaves_the_other_partitions_on_the_page(
    sandbox: Sandbox, browser: Any, axe: str, shots: Path
) -> None:
    require_releases("1.1.1")
    sandbox.start_zookeeper()
    brokers = [sandbox.start_broker("1.1.1") for _ in range(2)]
    sandbox.create_topic(TOPIC, 2)
    for partition in range(2):
        sandbox.produce(TOPIC, partition, RECORDS)
    with AdminSession.open(sandbox.zookeeper_connect) as session:
        make_groups(session, TOPIC, {GROUP: 2})
    with web_command("web", "--port", "0", "--zookeeper", sandbox.zookeeper_connect) as address:
        page = ShownPage(browser, address, axe, shots)
        page.open(f"/group/lag?name={GROUP}")
        page.wait_until(f"document.querySelector('.facts').textContent.includes('Lag{2 * (RECORDS - STORED_OFFSET)}')")
        brokers[1].kill()
        page.wait_until("document.querySelector('.trouble, .facts .unknown') !== null", 120_000)
        found = printed(sandbox, "lag", GROUP)
        [known] = [row for row in found["partitions"] if row["lag"] is not None]
        assert known["lag"] == RECORDS - STORED_OFFSET
        page.wait_until(f"document.querySelector('main').textContent.includes('{known['lag']}')")
        page.check("broker-gone")
        assert page.errors == []
        page.close()


def test_five_hundred_groups_with_ten_thousand_partitions_are_listed_and_found(
    sandbox: Sandbox, browser: Any, axe: str, shots: Path
) -> None:
    require_releases("1.1.1")
    sandbox.start_zookeeper()
    sandbox.start_broker("1.1.1")
    sandbox.create_topic(TOPIC, MANY_PARTITIONS)
    with AdminSession.open(sandbox.zookeeper_connect) as session:
        make_groups(session, TOPIC, {f"group-{number:04d}": MANY_PARTITIONS for number in range(MANY_GROUPS)})
    with web_command("web", "--port", "0", "--zookeeper", sandbox.zookeeper_connect) as address:
        page = ShownPage(browser, address, axe, shots)
        page.open("/")
        page.wait_for_text(f"{MANY_GROUPS} groups")
        page.page.get_by_label("Search").fill("group-0499")
        page.wait_for_text("group-0499")
        page.wait_until("document.querySelectorAll('main tbody tr').length === 1")
        page.check("many-groups")
        page.page.get_by_role("link", name="group-0499").click()
        page.wait_until("location.pathname === '/group'")
        page.wait_for_text(f"{MANY_PARTITIONS} partitions")
        assert page.errors == []
        page.close()


def test_the_keyboard_reaches_everything(group: Sandbox, browser: Any, axe: str, shots: Path) -> None:
    with web_command("web", "--port", "0", "--zookeeper", group.zookeeper_connect) as address:
        page = ShownPage(browser, address, axe, shots)
        page.open("/")
        page.wait_for_text(GROUP)
        reached = []
        for _ in range(20):
            page.page.keyboard.press("Tab")
            reached.append(page.page.evaluate("document.activeElement.textContent || document.activeElement.id"))
            if reached[-1] == GROUP:
                break
        assert reached[0] == "Skip to the content"
        assert "search" in reached
        page.page.keyboard.press("Enter")
        page.wait_until("location.pathname === '/group'")
        page.page.go_back()
        page.wait_for_text("1 group")
        assert page.errors == []
        page.close()


def test_on_another_address_a_browser_needs_the_token(group: Sandbox, browser: Any, axe: str, shots: Path) -> None:
    words = ("web", "--host", "0.0.0.0", "--port", "0", "--zookeeper", group.zookeeper_connect)
    with web_command(*words) as printed_address:
        port = printed_address.split(":")[2].split("/")[0]
        token = printed_address.partition("#token=")[2]
        local = f"http://127.0.0.1:{port}"
        for path in ("/", f"/group?name={GROUP}", "/events/list", "/about"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(local + path)
            assert refused.value.code == 401
            refused.value.close()
        page = ShownPage(browser, local, axe, shots)
        page.open("/")
        page.page.wait_for_url("**/sign-in")
        page.check("sign-in")
        page.open(f"/sign-in#token={token}")
        page.wait_for_text(GROUP)
        assert token not in page.page.url
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert token not in cookie["value"]
        assert page.errors == []
        page.close()


def test_the_demo_shows_every_panel(browser: Any, axe: str, shots: Path) -> None:
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
            page.check(name)
        assert page.errors == []
        page.close()
