"""The addresses of hosts: ``client.dns.lookup``."""

from __future__ import annotations

import socket

import pytest

from zkconsumer.errors import UnknownHostException
from zkconsumer.kafka.net.host_resolver import (
    RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY,
    bootstrap_addresses,
    preferred_addresses,
    resolve_host,
)

ADDRESSES = {"alias": ("10.0.0.1", "10.0.0.2"), "one": ("10.0.0.3",)}


def resolve(host: str) -> tuple[str, ...]:
    if host == "":
        raise UnicodeError("label empty")
    if host not in ADDRESSES:
        raise socket.gaierror(socket.EAI_NONAME, "not known")
    return ADDRESSES[host]


def test_ipv4_addresses_come_first_and_each_once() -> None:
    found = ["::1", "10.0.0.2", "fe80::1", "10.0.0.1", "10.0.0.2"]
    assert preferred_addresses(found) == ("10.0.0.2", "10.0.0.1", "::1", "fe80::1")


def test_an_ip_address_is_its_own_address() -> None:
    assert resolve_host("127.0.0.1") == ("127.0.0.1",)


def test_an_empty_name_has_no_address() -> None:
    with pytest.raises(socket.gaierror):
        resolve_host("")


def test_bootstrap_servers_keep_their_names_by_default() -> None:
    assert bootstrap_addresses([("alias", 1), ("one", 2)], resolve=resolve) == [("alias", 1), ("one", 2)]


def test_each_address_of_a_bootstrap_server_may_be_replaced_by_its_canonical_name() -> None:
    names = {"10.0.0.1": "a.example", "10.0.0.2": "b.example", "10.0.0.3": "a.example"}
    found = bootstrap_addresses(
        [("alias", 1), ("one", 1)],
        RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY,
        resolve=resolve,
        look_up_canonical_name=names.__getitem__,
    )
    assert found == [("a.example", 1), ("b.example", 1)]


def test_a_bootstrap_server_without_an_address_is_left_out() -> None:
    assert bootstrap_addresses([("gone", 1), ("", 1), ("one", 2)], resolve=resolve) == [("one", 2)]


def test_bootstrap_servers_without_any_address_are_an_error() -> None:
    with pytest.raises(UnknownHostException, match=r"gone: .*not known"):
        bootstrap_addresses([("gone", 1)], resolve=resolve)
