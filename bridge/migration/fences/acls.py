"""Access lists that refuse even a member that wakes from a long pause (K9), and their way back.

    ids            nobody registers                        the upper nodes first, so that nothing comes into being
    owners, T      nobody claims                           behind the fence; and ``ids`` before all: once nobody can
    offsets, T, P  nobody writes an offset                 register, one more look says whether somebody did

Only while ``ids`` is empty: a live member would keep its claims and stop reading after one try.  Nodes that are missing
are made, or a topic without nodes would be open.  The lists of before are in the plan, or written down beside it first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.authority import TRIES_MAX, Authority
from bridge.migration.errors import PartlyDone
from bridge.migration.fences.late_lists import keep_late_lists, lists_before
from bridge.migration.fences.lifting import LIFTING, nothing_to_lift
from bridge.migration.fences.lists import (
    MAY_LEAVE,
    OURS,
    READ_ONLY,
    AccessList,
    is_fence,
    is_fence_of,
    read_lists,
    take_back,
)
from bridge.migration.fences.owner_nodes import registered_meanwhile
from bridge.migration.fences.rights import fenced_levels, lacking_admin, words_of_lacking
from bridge.migration.phases import Phase
from bridge.migration.step import Done, Refused, Standing, Todo, Waiting
from zkconsumer.admin.session import words_of
from zkconsumer.admin.stores import members_of
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    OPEN_ACL,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Request,
    Result,
    SessionGone,
    SetAcl,
    StoreError,
    paths_of,
)

if TYPE_CHECKING:
    from zkconsumer.zk.requests import Acl

ROUNDS_MAX = 4 * TRIES_MAX
"""Looks at what is not fenced, or not put back: each level of nodes at least once."""

_LATER = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED)


@dataclass(frozen=True, slots=True)
class AclFence:
    """The lists of a fence on every node of the group.

    ``planned``: the lists that the plan saw.  ``members_leave``: members may still delete their claims.  Without it, in
    phase ``fencing``, that right is taken away, and nothing else looked at: nobody owns anything any more.  In phase
    ``returning`` every node is taken back for this run's login.
    """

    authority: Authority
    topics: tuple[str, ...]
    planned: Mapping[str, AccessList]
    members_leave: bool

    changes = True

    @property
    def name(self) -> str:
        return "access lists" if self.members_leave else "access lists: nobody deletes claims any more"

    def describe(self) -> list[str]:
        levels = fenced_levels(self.authority.session, self.authority.group, self.topics)
        return [f"change the access lists of {sum(map(len, levels))} nodes, from {levels[0][0]}: the world reads only"]

    def check(self) -> Standing:
        held = self.authority.stands(Phase.FENCING, Phase.RETURNING, *_LATER)
        if isinstance(held, Refused):
            return held
        if held is not None and held.phase in _LATER:
            return Done()
        members = members_of(self.authority.session, self.authority.group)
        if members:
            return Waiting(f"{', '.join(members[:5])} to leave ({len(members)} registered)")
        foreign = sorted(path for path, acl in self.planned.items() if is_fence(acl))
        if foreign:
            return Refused(
                PreconditionFailed(
                    f"{foreign[0]} and {len(foreign) - 1} more nodes had the lists of a fence already when the plan "
                    "was made, from a migration that was not undone: put them right by hand, then make a new plan"
                )
            )
        unfenced = self._unfenced(None if held is None else held.phase)
        lacking = lacking_admin(self.authority.session, {path: acl for path, acl in unfenced.items() if acl != ()})
        if lacking:
            return Refused(PartlyDone(f"{words_of_lacking(lacking)}. What was done stands"))
        return Todo() if unfenced else Done()

    def do(self) -> None:
        is_first = True
        for _ in range(ROUNDS_MAX):
            unfenced = self._unfenced(self.authority.require(Phase.FENCING, Phase.RETURNING).phase)
            if not unfenced:
                return
            if not self.authority.identity():
                self.authority.run_session()  # else it is the run that was lost, and not a login that is missing
                raise UsageError(
                    "access lists can be a fence for a login only: give --zookeeper-auth, or --no-acl-fence"
                )
            self._keep(unfenced)
            if self._set(unfenced) and paths.partition_of(next(iter(unfenced))) is not None:
                return  # the lowest level, whole: the look that comes after every step is enough
            if is_first and paths.ids(self.authority.group) in unfenced:
                members = members_of(self.authority.session, self.authority.group)
                if members:
                    raise registered_meanwhile(self.authority.group, members)
            is_first = False
        raise PartlyDone(
            f"the access lists of group {self.authority.group} are not all set: nodes come and go, or the connection "
            "broke again and again. What was done stands; run the same command again"
        )

    def _worlds(self, path: str, acl: AccessList) -> tuple[Acl, ...]:
        """What the world may have on a node that has this list, the one that is set first.

        A run that takes a node back does not let anybody delete again.
        """
        may_leave = self.members_leave and path.startswith(f"{paths.owners(self.authority.group)}/")
        return (MAY_LEAVE,) if may_leave and not (is_fence(acl) and READ_ONLY in acl) else (READ_ONLY,)

    def _levels(self, phase: Phase | None) -> list[list[str]]:
        session, group = self.authority.session, self.authority.group
        if self.members_leave or phase is not Phase.FENCING:
            return fenced_levels(session, group, self.topics)
        listed = session.children(paths.owners(group))
        return [[f"{paths.owners(group)}/{name}" for name in sorted(listed.names if listed else ())]]

    def _unfenced(self, phase: Phase | None) -> dict[str, AccessList | None]:
        """The nodes of the uppermost level that has some, with their lists: ``()`` for one that is missing."""
        identity = self.authority.identity()
        session = self.authority.session
        for level in self._levels(phase):
            lists = read_lists(session, level)
            wanted = {
                path: lists.get(path, ())
                for path in level
                if not is_fence_of(lists.get(path) or (), identity, self._worlds(path, lists.get(path) or ()))
            }
            if wanted:
                return wanted
        return {}

    def _keep(self, unfenced: Mapping[str, AccessList | None]) -> None:
        """Write down the lists that are neither a fence nor as the plan, or a run before, has them."""
        known = lists_before(self.authority, self.planned)
        late = {
            path: acl
            for path, acl in unfenced.items()
            if acl and not is_fence(acl) and (path not in known or set(known[path]) != set(acl))
        }
        if late:
            keep_late_lists(self.authority, late)

    def _set(self, unfenced: Mapping[str, AccessList | None]) -> bool:
        """Whether every one of them is certainly set."""
        requests: list[Request] = []
        for path, acl in unfenced.items():
            wanted = (OURS, self._worlds(path, acl or ())[0])
            if acl == ():
                requests += [*map(Create, paths.parents(path)[:2]), Create(path, acl=wanted)]
            else:
                requests.append(SetAcl(path, wanted))
        answers = _ask_bound(self.authority, requests, NodeExists, NoNode)
        return not any(isinstance(answer, StoreError) for answer in answers)


@dataclass(frozen=True, slots=True)
class RestoreLists:
    """Every list as it was before the fence, ``ids`` last; nodes that were made for the fence go, if they are empty.

    Only lists that are a fence are changed: what somebody changed meanwhile is his.
    """

    authority: Authority
    topics: tuple[str, ...]
    planned: Mapping[str, AccessList]

    name = "put the access lists back"
    changes = True

    def describe(self) -> list[str]:
        count = sum(len(fenced) for fenced in self._fenced())
        return [f"put the access lists of {count} nodes back as they were"]

    def check(self) -> Standing:
        ended = nothing_to_lift(self.authority)
        if ended is not None:
            return ended
        return Todo() if any(self._fenced()) else Done()

    def _fenced(self) -> list[list[str]]:
        """The nodes that carry a fence, by level, the lowest first."""
        session = self.authority.session
        found = []
        for level in reversed(fenced_levels(session, self.authority.group, self.topics)):
            lists = read_lists(session, level)
            found.append([path for path, acl in lists.items() if acl is not None and is_fence(acl)])
        return found

    def do(self) -> None:
        originals = lists_before(self.authority, self.planned)
        for _ in range(TRIES_MAX):
            self.authority.require(*LIFTING)
            levels = self._fenced()
            if not any(levels):
                return
            for level in levels:
                self._put_back([path for path in level if path in originals], originals)
                self._remove([path for path in level if path not in originals])
        if any(self._fenced()):
            raise PartlyDone(
                f"the access lists of group {self.authority.group} are not all back: the connection broke again and "
                "again. Run the same command again"
            )

    def _put_back(self, some: Sequence[str], originals: Mapping[str, AccessList]) -> None:
        _ask_bound(self.authority, [SetAcl(path, originals[path] or OPEN_ACL) for path in some], NoNode)

    def _remove(self, some: Sequence[str]) -> None:
        """What was made for the fence, or while it stood; what has children by now is open, as nodes are made."""
        if not some:
            return
        is_offset = [paths.partition_of(path) is not None for path in some]
        take_back(self.authority, sorted({path.rpartition("/")[0] for path in some}))
        removable = [path for path, is_one in zip(some, is_offset, strict=True) if not is_one]
        answers = _ask_bound(self.authority, [Delete(path) for path in removable], NoNode, NotEmpty)
        kept = [path for path, answer in zip(removable, answers, strict=True) if isinstance(answer, NotEmpty)]
        offsets = [path for path, is_one in zip(some, is_offset, strict=True) if is_one]
        _ask_bound(self.authority, [SetAcl(path, OPEN_ACL) for path in (*kept, *offsets)], NoNode)


def _ask_bound(authority: Authority, requests: Sequence[Request], *passed: type[StoreError]) -> list[Result]:
    """Carry them out in the session that holds the run, or not at all.

    What the connection took is looked at again by whoever asked.  Raises ``PartlyDone`` for what is refused.
    """
    if not requests:
        return []
    answers = authority.session.ask(requests, authority.run_session())
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, StoreError) and not isinstance(answer, (ConnectionLost, SessionGone, *passed)):
            [path] = paths_of(request)
            raise PartlyDone(
                f"ZooKeeper refused to change {path}: {words_of(answer)}. What was done stands; run the same command "
                "again, with --zookeeper-auth if another login is wanted"
            )
    return answers
