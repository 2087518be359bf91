"""A group whose nodes have access lists, a run with a login of its own, and clients that have another one or none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.migration.control.control_pieces import read_plan_text
from bridge.migration.plan.plan_file import plan_from_bytes, plan_to_bytes
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.migration_context import read_accepted_plan
from tests.migration.kill_cases import GROUP, KillScenario
from tests.migration.migration_write_faults import Lab
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.zk import paths
from zkconsumer.zk.requests import OPEN_ACL, PERM_ALL, PERM_READ, Acl, Request, Result, StoreError
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import DigestLogin, ZkLogin, identities

ALICE = DigestLogin("alice", "correct horse")
"""The login of the members of the group."""
OPERATOR = DigestLogin("operator", "secret")
MALLORY = DigestLogin("mallory", "other")
WORLD_READS = Acl(PERM_READ, "world", "anyone")
CONTROL = paths.control(GROUP)


def all_of(login: ZkLogin) -> Acl:
    """Every right for a login."""
    [(scheme, who)] = identities(login)
    return Acl(PERM_ALL, scheme, who)


def hash_of(login: ZkLogin) -> str:
    """What must be in no node that others may read."""
    return all_of(login).id


PROTECTED = (all_of(ALICE), all_of(OPERATOR), WORLD_READS)


def protect(zookeeper: FakeZooKeeper, acl: tuple[Acl, ...] = PROTECTED, group: str = GROUP) -> None:
    """Every node of the group gets this list."""
    root = paths.group_root(group)
    for path in zookeeper.tree.dump():
        if path == root or path.startswith(f"{root}/"):
            zookeeper.set_acl(path, acl)


def auth_of(folder: Path, login: DigestLogin) -> str:
    """``zookeeper.auth`` of this login."""
    secret = folder / f"{login.user}.secret"
    secret.touch(0o600)
    secret.write_text(f"{login.user}:{login.password}")
    return f"digest:{secret}"


def login_file(folder: Path, login: DigestLogin) -> Path:
    """The configuration of a tool that logs in so."""
    config = folder / f"{login.user}.properties"
    config.write_text(f"zookeeper.auth={auth_of(folder, login)}\n")
    return config


def log_in(lab: Lab, login: DigestLogin | None, folder: Path) -> None:
    """The next runs have this login of their own; None: one that is made up for the run."""
    lab.login = login or DigestLogin("zkconsumer-migrate", "random")
    lab.config_file = None if login is None else login_file(folder, login)


def protected_ground(folder: Path) -> KillScenario:
    """The group of ``kill_cases`` with access lists: of its members, of the operator, and for reading."""
    ground = KillScenario(folder)
    protect(ground.zookeeper)
    log_in(ground, OPERATOR, folder)
    return ground


def ask(ground: Any, login: ZkLogin | None, *requests: Request) -> list[Result]:
    """As another client."""
    store = FakeZkStore(ground.zookeeper, login=login)
    store.start(1_000)
    answers = list(submit_and_wait(store, requests, 1_000))
    store.close(1_000)
    return answers


def may(ground: Any, login: ZkLogin | None, request: Request) -> bool:
    """Whether it is carried out."""
    [answer] = ask(ground, login, request)
    return not isinstance(answer, StoreError)


def acl_of(ground: Any, path: str) -> set[Acl]:
    """The list of a node, as the server's administrator sees it."""
    return set(ground.zookeeper.tree._nodes[path].acl)


def lists_below(ground: Any, root: str) -> dict[str, set[Acl]]:
    """The lists of a node and of everything below it."""
    return {path: acl_of(ground, path) for path in ground.zookeeper.tree.dump() if f"{path}/".startswith(f"{root}/")}


def open_node(ground: Any, path: str, data: bytes = b"") -> None:
    """A node that every client may write, as an earlier release created it."""
    ground.zookeeper.ensure(path, data)
    ground.zookeeper.set_acl(path, OPEN_ACL)


def resume(ground: KillScenario, session: AdminSession, **options: Any) -> None:
    """``apply --resume G`` with a digest that was confirmed."""
    first = plan_from_bytes(read_plan_text(session, GROUP))
    moving = ground.moving(session, first)
    moving.plan = read_accepted_plan(session, first) or first
    ground.carry_out(moving, copy_steps(moving, CopyOptions(plan_to_bytes(first), **options)))
