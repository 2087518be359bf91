"""``AdminSession``: what a tool needs of ZooKeeper and of the brokers, with a limit on every wait.

    with AdminSession.open("zk1:2181/kafka") as session:
        [node] = session.ask([Get("/consumers/g1")])
        leaders = session.brokers.leaders(["clicks"])

It registers nothing: no member of any group sees it.  Reads that the connection took with it are asked again; writes
never are, since an answer that was lost does not say whether the write was carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from zkconsumer.admin.broker_client import BrokerClient
from zkconsumer.admin.text_format import count_text
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import UnavailableError, ZkReadNotAuthorized, ZkTimeoutException
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.broker_connection import ConnectionFactory
from zkconsumer.kafka.broker_security import connection_factory_from_config
from zkconsumer.runtime.broker_access import NO_BOOTSTRAP_SERVER, BrokerAccess
from zkconsumer.zk.kazoo_store import kazoo_store_factory
from zkconsumer.zk.requests import (
    ChildNames,
    Children,
    ConnectionLost,
    Exists,
    Get,
    GetAcl,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    NoAuth,
    NoNode,
    Request,
    Result,
    SessionEnded,
    SetAcl,
    StoreError,
    ZnodeAcl,
    ZnodeData,
)
from zkconsumer.zk.store import ZkStore, submit_and_wait

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.zk.requests import Acl

SESSION_TIMEOUT_MS = 30_000
CONNECTION_TIMEOUT_MS = 30_000
"""What the old tools ask ZooKeeper for (0.8 to 1.1)."""

SESSION_TIMEOUT_PROBE_MS = 86_400_000
"""More than any ZooKeeper grants: 20 ticks, 40 s, unless ``maxSessionTimeout`` says more."""

ROUND_TIMEOUT_MS = 30_000
"""How long ZooKeeper may take to answer one round of requests."""

ROUND_REQUESTS_MAX = 1_000
"""Requests that are on their way at once: enough to hide the network, few enough to hold in memory."""

ROUND_READS_MAX = 10_000
"""Nodes in one ``GetMany`` or ``GetManyAcls``: ten packets on their way where a server reads many nodes at once, so
that it works while what it read is taken apart here; what it reads one by one in a fraction of ``ROUND_TIMEOUT_MS``.
"""

CACHED_ACL_DATA_BYTES_MAX = 1_000
"""Of nodes with more data the access control list is read anew each time: to look whether it was changed is to read the
data."""

NODES_SHOWN_MAX = 1_000
"""How many nodes an error names: all of them, unless nobody could read on."""

READ_TRIES_MAX = 3
"""How often a read is asked that the connection took with it."""

CLOSE_TIMEOUT_MS = 2_000

TOOLS_GROUP = "zkconsumer-admin"
"""Stands in ``group.id`` of the configuration where a tool has no group; it is written nowhere."""

ZOOKEEPER_PLACEHOLDER = "unused:2181"
"""Stands in ``zookeeper.connect`` where a tool has brokers only; nobody connects to it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminDependencies:
    """How servers are reached; ``zkconsumer.testing.FakeEnvironment`` has other ones.

    ``connect`` None: as the configuration says, TLS and SASL among it.
    """

    store: Callable[..., ZkStore] | None = None
    """Called as ``store(connect, session_timeout_ms)``, and with ``security`` where a tool logs in as somebody else
    than the configuration says.  None: real servers, with the login and the TLS of the configuration."""

    connect: ConnectionFactory | None = None
    clock: Clock = SYSTEM_CLOCK


class AdminSession:
    """A tool's session.  A context manager; ``open`` makes and starts one."""

    def __init__(self, config: ConsumerConfig, dependencies: AdminDependencies | None = None) -> None:
        self._dependencies = dependencies or AdminDependencies()
        self.config = config
        self.clock = self._dependencies.clock
        self._open_store = self._dependencies.store or kazoo_store_factory(config)
        self._create_clients(SESSION_TIMEOUT_MS)
        self.has_topics_in_zookeeper = config.bootstrap_servers is None
        """Whether topics are znodes; with ``bootstrap.servers`` the brokers tell of them."""

    def _create_clients(self, session_timeout_ms: int) -> None:
        config, dependencies = self.config, self._dependencies
        self._acl_cache: dict[str, _CachedAcl] = {}
        self._store = self._open_store(config.zookeeper_connect, session_timeout_ms)
        access = BrokerAccess.from_config(
            config, self._store, ROUND_TIMEOUT_MS, dependencies.clock, connect=dependencies.connect
        )
        self.brokers = BrokerClient(
            access.find_brokers,
            access.connect,
            dependencies.clock,
            client_id=config.client_id,
            no_broker_message=access.no_broker_message,
        )

    @classmethod
    def open(
        cls,
        zookeeper: str | None,
        config_file: Path | None = None,
        dependencies: AdminDependencies | None = None,
        bootstrap_servers: str | None = None,
    ) -> AdminSession:
        """A session that is connected.

        ``zookeeper`` is host:port/chroot, ``bootstrap_servers`` host:port,…; both win over the file.  That may hold
        whatever a consumer's file holds,
        which is where rights and keys come from.  Raises ``InvalidConfigException``, ``ZkTimeoutException`` (naming
        the addresses) after ``CONNECTION_TIMEOUT_MS``, ``ChrootMissing``.
        """
        session = cls(tools_config(zookeeper, config_file, bootstrap_servers), dependencies)
        session.start()
        return session

    def start(self, timeout_ms: int = CONNECTION_TIMEOUT_MS) -> None:
        """Connect, within ``timeout_ms``; raises what ``ZkStore.start`` raises, with nothing left running."""
        self._store.listen(lambda _: None)
        try:
            self._store.start(timeout_ms)
        except BaseException:
            self._store.close(CLOSE_TIMEOUT_MS)
            raise

    def close(self) -> None:
        """End the session and every connection; may be called twice."""
        self.brokers.close()
        self._store.close(CLOSE_TIMEOUT_MS)

    def reopen(self, session_timeout_ms: int) -> None:
        """End the session, and begin another one, for which ZooKeeper is asked for this time-out.

        Its ephemeral nodes are gone then.  Raises what ``start`` raises; the session is closed then.
        """
        self.close()
        self._create_clients(session_timeout_ms)
        self.start()

    def __enter__(self) -> AdminSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- ZooKeeper ----------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int | None:
        """Our session there, None between two; whoever must not act for an earlier one names it to ``ask``."""
        return self._store.session_id

    @property
    def negotiated_timeout_ms(self) -> int:
        """The time-out of our session that ZooKeeper granted, which may be more or less than it was asked for."""
        return self._store.negotiated_timeout_ms

    def max_session_timeout_ms(self) -> int:
        """The longest session that ZooKeeper grants, by asking for a day: no member's node outlives it by more.

        Whoever asks for long sessions also waits long for a server that is silent, so several are tried.  Raises
        ``ZkTimeoutException`` when none answers.
        """
        for tries_left in reversed(range(READ_TRIES_MAX)):
            store = self._open_store(self.config.zookeeper_connect, SESSION_TIMEOUT_PROBE_MS)
            store.listen(lambda _: None)
            try:
                store.start(CONNECTION_TIMEOUT_MS // READ_TRIES_MAX)
                return store.negotiated_timeout_ms
            except ZkTimeoutException:
                if not tries_left:
                    raise
            finally:
                store.close(CLOSE_TIMEOUT_MS)
        raise AssertionError("the last try returns or raises")

    def request(self, requests: Sequence[Request], in_session: int | None = None) -> list[Result]:
        """The results, in order, one a request; asked in rounds of ``ROUND_REQUESTS_MAX``.

        Reads that a broken connection left without an answer are asked again.  With ``in_session`` they are carried
        out in that session or not at all (``SessionEnded``).  Raises ``ZkTimeoutException``.
        """
        for request in requests:
            if isinstance(request, SetAcl):
                self._acl_cache.pop(request.path, None)
        results: list[Result] = []
        for round_ in chunks(requests, ROUND_REQUESTS_MAX):
            results += self._request_round(round_, in_session)
        return results

    def _request_round(self, requests: Sequence[Request], in_session: int | None) -> list[Result]:
        results = submit_and_wait(self._store, requests, ROUND_TIMEOUT_MS, in_session)
        for _ in range(READ_TRIES_MAX - 1):
            again = [n for n, request in enumerate(requests) if _is_read(request) and _has_connection_loss(results[n])]
            if not again:
                break
            answers = submit_and_wait(self._store, [requests[n] for n in again], ROUND_TIMEOUT_MS, in_session)
            for n, result in zip(again, answers, strict=True):
                results[n] = result
        return results

    def get(self, path: str) -> ZnodeData | None:
        """A node, None when it is missing.  Raises ``UnavailableError`` when ZooKeeper does not tell (``NoAuth``)."""
        [result] = self.request([Get(path)])
        return None if isinstance(result, NoNode) else expect_result(result, ZnodeData, path)

    def children(self, path: str) -> ChildNames | None:
        """A node's children, None when it is missing.  Raises ``UnavailableError`` when ZooKeeper does not tell."""
        [result] = self.request([Children(path)])
        return None if isinstance(result, NoNode) else expect_result(result, ChildNames, path)

    def get_many(self, wanted: Iterable[str]) -> dict[str, ZnodeData]:
        """The nodes that exist, by path.  Raises ``UnavailableError`` when ZooKeeper does not tell of one."""
        found: dict[str, ZnodeData] = {}
        refused: list[str] = []
        for some in chunks(list(wanted), ROUND_READS_MAX):
            [results] = self.request([GetMany(tuple(some))])
            assert isinstance(results, list), "reading many gives a list"
            for path, result in zip(some, results, strict=True):
                if isinstance(result, ZnodeData):
                    found[path] = result
                elif isinstance(result, NoAuth):
                    refused.append(path)
                elif not isinstance(result, NoNode):
                    found[path] = expect_result(result, ZnodeData, path)
        if refused:
            raise read_not_authorized_error(refused)
        return found

    def children_of_many(self, wanted: Iterable[str]) -> dict[str, ChildNames]:
        """The children of each node that exists, by path.  Raises ``UnavailableError`` when ZooKeeper does not tell."""
        paths_ = list(wanted)
        answers = dict(zip(paths_, self.request([Children(path) for path in paths_]), strict=True))
        refused = [path for path, one in answers.items() if isinstance(one, NoAuth)]
        if refused:
            raise read_not_authorized_error(refused)
        return {
            path: expect_result(one, ChildNames, path) for path, one in answers.items() if not isinstance(one, NoNode)
        }

    def get_acls(self, wanted: Iterable[str]) -> dict[str, tuple[Acl, ...] | None]:
        """The access control lists of the nodes that exist, by path, in this order; None: we may not look at it.

        A list costs a packet.  One that this session read before is not asked for again as long as its node has the
        same ``czxid`` and ``aversion``, which says that the list was not changed since; many of these are read in one
        packet, where the server can do that.  Raises ``UnavailableError`` when ZooKeeper does not tell.
        """
        found: dict[str, tuple[Acl, ...] | None] = {}
        for some in chunks(list(wanted), ROUND_READS_MAX):
            known = [path for path in some if path in self._acl_cache]
            settled = self._unchanged(known) if known else {}
            asked = tuple(path for path in some if path not in settled)
            [answer] = self.request([GetManyAcls(asked)]) if asked else [ManyAclsResult([])]
            assert isinstance(answer, ManyAclsResult), "reading lists gives what was read"
            fresh = dict(zip(asked, answer.found, strict=True))
            for path in some:
                if path in settled:
                    found[path] = settled[path]
                    continue
                one = fresh[path]
                if isinstance(one, NoAuth):
                    found[path] = None
                elif not isinstance(one, NoNode):
                    acl, stat = expect_result(one, ZnodeAcl, path)
                    found[path] = acl
                    if stat.data_length <= CACHED_ACL_DATA_BYTES_MAX:
                        self._acl_cache[path] = _CachedAcl(stat.czxid, stat.aversion, acl)
        return found

    def _unchanged(self, known: Sequence[str]) -> dict[str, tuple[Acl, ...]]:
        """The lists that are as they were when they were read."""
        [nodes] = self.request([GetMany(tuple(known))])
        assert isinstance(nodes, list), "reading many gives a list"
        unchanged: dict[str, tuple[Acl, ...]] = {}
        for path, node in zip(known, nodes, strict=True):
            czxid, aversion, acl = self._acl_cache[path]
            if isinstance(node, ZnodeData) and (node.stat.czxid, node.stat.aversion) == (czxid, aversion):
                unchanged[path] = acl
        return unchanged


class _CachedAcl(NamedTuple):
    """An access control list as it was read, and what tells that it was not changed since."""

    czxid: int
    aversion: int
    acl: tuple[Acl, ...]


class BrokerAdminSession:
    """What a tool needs of a cluster of which it knows the brokers alone.  A context manager."""

    def __init__(self, config: ConsumerConfig, dependencies: AdminDependencies | None = None) -> None:
        dependencies = dependencies or AdminDependencies()
        assert config.bootstrap_servers is not None, "without ZooKeeper the brokers must be named"
        self.clock = dependencies.clock
        bootstrap = BootstrapBrokers(config.bootstrap_servers)
        if dependencies.connect is None:
            bootstrap.check()
        connect = dependencies.connect or connection_factory_from_config(config, None, dependencies.clock)
        self.brokers = BrokerClient(
            bootstrap.brokers,
            connect,
            dependencies.clock,
            client_id=config.client_id,
            no_broker_message=NO_BOOTSTRAP_SERVER,
        )

    @classmethod
    def open(
        cls, bootstrap_servers: str, config_file: Path | None = None, dependencies: AdminDependencies | None = None
    ) -> BrokerAdminSession:
        """Nothing is connected yet.  Raises ``InvalidConfigException``, ``UnknownHostException``.

        Rights and keys come from the file.
        """
        return cls(tools_config(ZOOKEEPER_PLACEHOLDER, config_file, bootstrap_servers), dependencies)

    def close(self) -> None:
        """End every connection; may be called twice."""
        self.brokers.close()


AnySession: TypeAlias = AdminSession | BrokerAdminSession
"""For what tools do at brokers, whether or not they know a ZooKeeper too."""


def expect_result(result: object, kind: type[T], path: str) -> T:
    """The result; ``ZkReadNotAuthorized`` where ZooKeeper refuses it, else ``untold`` says what it answered instead."""
    if isinstance(result, kind):
        return result
    if isinstance(result, NoAuth):
        raise read_not_authorized_error([path])
    raise unexpected_result_error(f"ZooKeeper did not tell about {path}", result)


def unexpected_result_error(words: str, result: object) -> UnavailableError:
    """What to raise for an answer that does not tell: ``ZkTimeoutException`` where the connection took it along."""
    kind = ZkTimeoutException if isinstance(result, ConnectionLost | SessionEnded) else UnavailableError
    return kind(f"{words}: {zk_error_name(result)}")


def read_not_authorized_error(refused: Sequence[str]) -> ZkReadNotAuthorized:
    """What to raise for nodes that ZooKeeper does not let us read: all of them, and what to do."""
    more = f"\n  and {len(refused) - NODES_SHOWN_MAX} more" if len(refused) > NODES_SHOWN_MAX else ""
    names = "".join(f"\n  {path}" for path in refused[:NODES_SHOWN_MAX])
    return ZkReadNotAuthorized(
        f"ZooKeeper does not let us read {count_text(len(refused), 'node')} (NoAuth):{names}{more}\nLog in as whom "
        "their "
        "access control lists name (zookeeper.auth in the file of settings), or have the right to read added to them"
    )


def zk_error_name(result: object) -> str:
    """An error of ZooKeeper in a word or two."""
    return type(result).__name__ if isinstance(result, StoreError) else repr(result)


def chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Cut into lists of at most ``size``."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _is_read(request: Request) -> bool:
    return isinstance(request, Get | Exists | Children | GetMany | GetAcl | GetManyAcls)


def _has_connection_loss(result: Result) -> bool:
    results = result.found if isinstance(result, ManyAclsResult) else result if isinstance(result, list) else [result]
    return any(isinstance(one, ConnectionLost | SessionEnded) for one in results)


def tools_config(
    zookeeper: str | None,
    config_file: Path | None,
    bootstrap_servers: str | None = None,
    more: Mapping[str, object] | None = None,
) -> ConsumerConfig:
    """The configuration of a tool: ``zookeeper``, ``bootstrap_servers`` and ``more`` settings win over the file.

    Raises ``InvalidConfigException``.
    """
    overrides: dict[str, object] = dict(more or {})
    if zookeeper is not None:
        overrides["zookeeper.connect"] = zookeeper
    if bootstrap_servers is not None:
        overrides["bootstrap.servers"] = bootstrap_servers
    return ConsumerConfig.from_files(config_file, {"group.id": TOOLS_GROUP, **overrides})
