"""``zookeeper.connect``."""

from __future__ import annotations

import pytest

from zkconsumer.errors import InvalidConfigException
from zkconsumer.zk.connect_string import ConnectString, parse_connect


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("h1:2182", (("h1", 2182),), ""),
        ("h1", (("h1", 2181),), ""),
        ("h1:1,h2:2/kafka/x", (("h1", 1), ("h2", 2)), "/kafka/x"),
        ("h1:1, h2:2", (("h1", 1), ("h2", 2)), ""),
        ("h1:1/", (("h1", 1),), ""),
        ("[::1]:2181/k", (("::1", 2181),), "/k"),
        ("127.0.0.1:2181", (("127.0.0.1", 2181),), ""),
    ],
)
def test_servers_and_chroot_are_told_apart(text: str, hosts: tuple[tuple[str, int], ...], chroot: str) -> None:
    assert parse_connect(text) == ConnectString(hosts, chroot)


def test_the_text_spells_out_every_port() -> None:
    assert str(parse_connect("h1,[::1]:5/kafka")) == "h1:2181,[::1]:5/kafka"


@pytest.mark.parametrize(
    "text",
    ["", ",", "h1:0", "h1:65536", "h1:x", "h1:-1", "::1", "h1:1,", "/kafka", "a b:1", "u@h:1", "h1:٣", "h1:1/kafka/",
     "h1:1//kafka", "h1:1/..", "h1:1/a/../b", "h1:1/a\x00"],
)  # fmt: skip
def test_what_is_no_address_or_no_chroot_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigException, match=r"zookeeper\.connect"):
        parse_connect(text)
