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
from zkconsumer.testing.sandbox import Sandbox

__all__ = ["axe", "browser"]

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(300)]

GROUP, TOPIC, PARTITIONS, RECORDS = "billing", "clicks", 4, 25
OUR_KIND, SCALA_KIND = "zkconsumer", "Scala"


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
    """The document that a command prints."""
    command = [sys.executable, "-c", START, *words, "-o", "json", "--zookeeper", sandbox.zookeeper_connect]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


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
