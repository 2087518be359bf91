"""The login with which a migration changes access lists: the operator's, or a random one of a single run.

--zookeeper-auth digest:FILE, sasl-…    the login of ``zookeeper.auth``: the migration belongs to it, and a run with
                                        another login is refused (``access``)
neither, nor in --config                a random digest, which exists only in memory.  A later run has another one, and
                                        takes the nodes over with the world's ADMIN permission: this blocks programs,
                                        not people, and only a group that gives everything to the world is migrated so
--no-acl-fence                          no login is generated, since no list is changed
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zkconsumer.admin.admin_session import AdminDependencies, AdminSession, tools_config
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.zk_security import DigestLogin, ZkSecurity, zk_security_of

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig

GENERATED_USER = "zkconsumer-migrate"
"""Is part of the lists of a fence, so that a person who reads one knows its origin."""

PASSWORD_BYTES = 24


def fence_security(config: ConsumerConfig, *, acl_fence: bool) -> ZkSecurity:
    """Login and TLS of the configuration; without a login, and with lists to change, a random digest.

    Raises ``InvalidConfigException`` for files that cannot be used.
    """
    security = zk_security_of(config)
    if security.login is not None or not acl_fence:
        return security
    return replace(security, login=DigestLogin(GENERATED_USER, secrets.token_urlsafe(PASSWORD_BYTES)))


def open_fence_session(
    zookeeper: str | None,
    config_file: Path | None = None,
    doors: AdminDependencies | None = None,
    bootstrap_servers: str | None = None,
    *,
    zookeeper_auth: str | None = None,
    acl_fence: bool = True,
) -> AdminSession:
    """A session that is connected, and logged in for the fence.

    ``zookeeper_auth`` replaces the file's.  Raises what ``AdminSession.open`` raises, and ``ZkAuthenticationFailed``.
    """
    more: dict[str, object] = {} if zookeeper_auth is None else {"zookeeper.auth": zookeeper_auth}
    config = tools_config(zookeeper, config_file, bootstrap_servers, more)
    security = fence_security(config, acl_fence=acl_fence)
    doors = doors or AdminDependencies()
    session = AdminSession(config, replace(doors, store=partial(doors.store or KazooStore, security=security)))
    session.start()
    return session
