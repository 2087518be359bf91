"""``AdminSession``: a tool's access to ZooKeeper and to the brokers, with a limit on every wait.

    with AdminSession.open("zk1:2181/kafka") as session:
        [node] = session.request([Get("/consumers/g1")])
        leaders = session.brokers.leaders(["clicks"])

It registers nothing, so no member of any group notices it.  Reads that fail with the connection are repeated.  Writes
are never repeated, as a lost answer does not show whether the write was executed.
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
from zkconsumer.base.progress import progress_task
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import UnavailableError, ZkReadNotAuthorized, ZkTimeoutException
from zkconsumer.kafka.bootstrap_brokers import BootstrapBrokers
from zkconsumer.kafka.broker_connection import ConnectionFactory
from zkconsumer.kafka.broker_security import connection_factory_from_config
from zkconsumer.runtime.broker_access import NO_BOOTSTRAP_SERVER, BrokerAccess
from zkconsumer.wire.isolation_level import IsolationLevel
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
"""The session timeout that the old tools request (0.8 to 1.1)."""

SESSION_TIMEOUT_PROBE_MS = 86_400_000
"""More than any ZooKeeper grants: 20 ticks, 40 s, unless ``maxSessionTimeout`` is set."""

ROUND_TIMEOUT_MS = 30_000
"""How long ZooKeeper may take to answer one round of requests."""

ROUND_REQUESTS_MAX = 1_000
"""Requests in flight at once: enough to hide the network latency, few enough to fit in memory."""

ROUND_READS_MAX = 10_000
"""Nodes in one ``GetMany`` or ``GetManyAcls``.  Ten packets are in flight if a server reads many nodes at once, so the
server works while this program parses earlier answers.  If it reads nodes one by one, the request still takes only a
fraction of ``ROUND_TIMEOUT_MS``.
"""

CACHED_ACL_DATA_BYTES_MAX = 1_000
"""For nodes with more data the access control list is read again each time, because the check whether it has changed
reads the data."""

NODES_SHOWN_MAX = 1_000
"""How many nodes an error names."""

READ_TRIES_MAX = 3
"""How often a read is repeated after the connection broke."""

CLOSE_TIMEOUT_MS = 2_000

TOOLS_GROUP = "zkconsumer-admin"
"""Placeholder for ``group.id`` in the configuration of a tool without a group; it is never written anywhere."""

ZOOKEEPER_PLACEHOLDER = "unused:2181"
"""Placeholder for ``zookeeper.connect`` in a tool with brokers only; it is never connected to."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminDependencies:
    """How servers are reached; ``zkconsumer.testing.FakeEnvironment`` replaces them.

    ``connect`` None: as configured, including TLS and SASL.
    """

    store: Callable[..., ZkStore] | None = None
    """Called as ``store(connect, session_timeout_ms)``, and with ``security`` if a tool uses another login than the
    configured one.  None: real servers, with the configured login and TLS."""

    connect: ConnectionFactory | None = None
    clock: Clock = SYSTEM_CLOCK


class AdminSession:
    """A tool's session.  A context manager; ``open`` makes and starts one."""

    def __init__(self, config: ConsumerConfig, dependencies: AdminDependencies | None = None) -> None:
        self._dependencies = dependencies or AdminDependencies()
        self.config = config
        self.clock = self._dependencies.clock
        self.isolation_level = IsolationLevel.of_setting(config.isolation_level)
        self._open_store = self._dependencies.store or kazoo_store_factory(config)
        self._create_clients(SESSION_TIMEOUT_MS)
        self.has_topics_in_zookeeper = config.bootstrap_servers is None
        """Whether topics are read from znodes; with ``bootstrap.servers`` they are read from the brokers."""

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

        ``zookeeper`` is host:port/chroot, ``bootstrap_servers`` host:port,…; both override the file.  The file may
        contain any setting of a consumer; credentials and keys come from it.  Raises ``InvalidConfigException``,
        ``ZkTimeoutException`` (naming the addresses) after ``CONNECTION_TIMEOUT_MS``, ``ChrootMissing``.
        """
        session = cls(tools_config(zookeeper, config_file, bootstrap_servers), dependencies)
        session.start()
        return session

    def start(self, timeout_ms: int = CONNECTION_TIMEOUT_MS) -> None:
        """Connect within ``timeout_ms``; raises what ``ZkStore.start`` raises, after everything was stopped."""
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
        """End the session, and begin another one with this requested session timeout.

        This deletes the ephemeral nodes of the old session.  If it raises what ``start`` raises, the session is closed.
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
        """The id of the present session, None between two sessions; ``request`` takes it to reject work for an earlier
        one."""
        return self._store.session_id

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session timeout that ZooKeeper granted, which may be more or less than requested."""
        return self._store.negotiated_timeout_ms

    def max_session_timeout_ms(self) -> int:
        """The longest session timeout that ZooKeeper grants, found by requesting a day.

        No member's ephemeral node outlives its session by more than this.  A client that requests a long session also
        waits long for a silent server, so several connections are tried.  Raises ``ZkTimeoutException`` when none
        answers.
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
        """Return the results in order, one for each request; sent in rounds of ``ROUND_REQUESTS_MAX``.

        Reads that lost their answer with the connection are repeated.  With ``in_session`` the requests are executed in
        that session or not at all (``SessionEnded``).  Raises ``ZkTimeoutException``.
        """
        for request in requests:
            if isinstance(request, SetAcl):
                self._acl_cache.pop(request.path, None)
        results: list[Result] = []
        with progress_task("requests to ZooKeeper", _total(requests, ROUND_REQUESTS_MAX)) as task:
            for round_ in chunks(requests, ROUND_REQUESTS_MAX):
                results += self._request_round(round_, in_session)
                task.advance(len(round_))
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
        """A node, None if it does not exist.

        Raises ``UnavailableError`` if ZooKeeper cannot answer (also ``NoAuth``).
        """
        [result] = self.request([Get(path)])
        return None if isinstance(result, NoNode) else expect_result(result, ZnodeData, path)

    def children(self, path: str) -> ChildNames | None:
        """A node's children, None if it does not exist.  Raises ``UnavailableError`` if ZooKeeper cannot answer."""
        [result] = self.request([Children(path)])
        return None if isinstance(result, NoNode) else expect_result(result, ChildNames, path)

    def get_many(self, wanted: Iterable[str]) -> dict[str, ZnodeData]:
        """The nodes that exist, by path.  Raises ``UnavailableError`` if ZooKeeper does not answer for one of them."""
        found: dict[str, ZnodeData] = {}
        refused: list[str] = []
        all_paths = list(wanted)
        with progress_task("reading from ZooKeeper", _total(all_paths, ROUND_READS_MAX), "znodes") as task:
            for some in chunks(all_paths, ROUND_READS_MAX):
                [results] = self.request([GetMany(tuple(some))])
                assert isinstance(results, list), "reading many gives a list"
                for path, result in zip(some, results, strict=True):
                    if isinstance(result, ZnodeData):
                        found[path] = result
                    elif isinstance(result, NoAuth):
                        refused.append(path)
                    elif not isinstance(result, NoNode):
                        found[path] = expect_result(result, ZnodeData, path)
                task.advance(len(some))
        if refused:
            raise read_not_authorized_error(refused)
        return found

    def children_of_many(self, wanted: Iterable[str]) -> dict[str, ChildNames]:
        """The children of each existing node, by path.  Raises ``UnavailableError`` if ZooKeeper does not answer."""
        paths_ = list(wanted)
        answers = dict(zip(paths_, self.request([Children(path) for path in paths_]), strict=True))
        refused = [path for path, one in answers.items() if isinstance(one, NoAuth)]
        if refused:
            raise read_not_authorized_error(refused)
        return {
            path: expect_result(one, ChildNames, path) for path, one in answers.items() if not isinstance(one, NoNode)
        }

    def get_acls(self, wanted: Iterable[str]) -> dict[str, tuple[Acl, ...] | None]:
        """Return the access control lists of the existing nodes, by path, in this order; None: no right to read it.

        A list costs a packet.  A list that this session has read is not requested again while its node has the same
        ``czxid`` and ``aversion``: then it has not changed.  These checks share packets if the server supports
        that.  Raises ``UnavailableError`` if ZooKeeper does not answer.
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
        """The lists that have not changed since they were read."""
        [nodes] = self.request([GetMany(tuple(known))])
        assert isinstance(nodes, list), "reading many gives a list"
        unchanged: dict[str, tuple[Acl, ...]] = {}
        for path, node in zip(known, nodes, strict=True):
            czxid, aversion, acl = self._acl_cache[path]
            if isinstance(node, ZnodeData) and (node.stat.czxid, node.stat.aversion) == (czxid, aversion):
                unchanged[path] = acl
        return unchanged


class _CachedAcl(NamedTuple):
    """An access control list, and the versions that show whether it has changed since."""

    czxid: int
    aversion: int
    acl: tuple[Acl, ...]


class BrokerAdminSession:
    """Access to a cluster of which only the brokers are configured.  A context manager."""

    def __init__(self, config: ConsumerConfig, dependencies: AdminDependencies | None = None) -> None:
        dependencies = dependencies or AdminDependencies()
        assert config.bootstrap_servers is not None, "without ZooKeeper the brokers must be named"
        self.clock = dependencies.clock
        self.isolation_level = IsolationLevel.of_setting(config.isolation_level)
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
        """Return a session; nothing is connected yet.  Raises ``InvalidConfigException``, ``UnknownHostException``.

        Credentials and keys come from the file.
        """
        return cls(tools_config(ZOOKEEPER_PLACEHOLDER, config_file, bootstrap_servers), dependencies)

    def close(self) -> None:
        """End every connection; may be called twice."""
        self.brokers.close()


AnySession: TypeAlias = AdminSession | BrokerAdminSession
"""For tools that work at brokers, with or without a ZooKeeper."""


def expect_result(result: object, kind: type[T], path: str) -> T:
    """Return the result.  Raises ``ZkReadNotAuthorized`` if ZooKeeper refuses it, else ``unexpected_result_error``."""
    if isinstance(result, kind):
        return result
    if isinstance(result, NoAuth):
        raise read_not_authorized_error([path])
    raise unexpected_result_error(f"ZooKeeper did not answer for {path}", result)


def unexpected_result_error(words: str, result: object) -> UnavailableError:
    """The exception for an unusable answer; ``ZkTimeoutException`` if the connection broke."""
    kind = ZkTimeoutException if isinstance(result, ConnectionLost | SessionEnded) else UnavailableError
    return kind(f"{words}: {zk_error_name(result)}")


def read_not_authorized_error(refused: Sequence[str]) -> ZkReadNotAuthorized:
    """The exception for nodes that ZooKeeper does not let us read, with all their paths and what to do."""
    more = f"\n  and {len(refused) - NODES_SHOWN_MAX} more" if len(refused) > NODES_SHOWN_MAX else ""
    names = "".join(f"\n  {path}" for path in refused[:NODES_SHOWN_MAX])
    return ZkReadNotAuthorized(
        f"ZooKeeper does not let us read {count_text(len(refused), 'node')} (NoAuth):{names}{more}\nUse a login that "
        "their access control lists name (zookeeper.auth in the file of settings), or add the right to read to the "
        "lists"
    )


def zk_error_name(result: object) -> str:
    """An error of ZooKeeper in one or two words."""
    return type(result).__name__ if isinstance(result, StoreError) else repr(result)


def chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    """Cut into lists of at most ``size``."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _total(items: Sequence[object], size: int) -> int | None:
    """The total of a task in rounds of ``size``; None for a single round: its only count would come with its end."""
    return len(items) if len(items) > size else None


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
    """The configuration of a tool: ``zookeeper``, ``bootstrap_servers`` and ``more`` settings override the file.

    Raises ``InvalidConfigException``.
    """
    overrides: dict[str, object] = dict(more or {})
    if zookeeper is not None:
        overrides["zookeeper.connect"] = zookeeper
    if bootstrap_servers is not None:
        overrides["bootstrap.servers"] = bootstrap_servers
    return ConsumerConfig.from_files(config_file, {"group.id": TOOLS_GROUP, **overrides})
