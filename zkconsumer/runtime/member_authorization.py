"""The ZooKeeper permissions of this member: the ACL of its nodes, and log texts for denied requests.

A denial is logged once for each node and ACL, with the users that have the permission.  A member that owns no partition
and may not create owner nodes is ended: while it is registered, the other members assign partitions to it, and no
member reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from zkconsumer.member.events import WriteOutcome

if TYPE_CHECKING:
    from zkconsumer.zk.acl_denials import DenialCollector
    from zkconsumer.zk.group_procedures import AcquireOwnershipProcedure
    from zkconsumer.zk.requests import Acl

AUTHORIZATION_ADVICE = (
    "log in as one of these (zookeeper.auth), or let one of them open the nodes of the group (setAcl)"
)

log = logging.getLogger("zkconsumer.group")


class MemberAuthorization:
    """The permissions of one member; used only on its control thread."""

    def __init__(
        self, acl: tuple[Acl, ...] | None, who: str, holds_nothing: Callable[[], bool], end: Callable[[str], None]
    ) -> None:
        self.acl = acl
        self._user = who
        self._holds_nothing = holds_nothing
        self._end = end
        self._logged: set[str] = set()

    def on_acquired(self, claims: AcquireOwnershipProcedure) -> None:
        """Check the results of acquiring owner nodes."""
        self.report_denials(claims.denials)
        results = claims.results.values()
        words = [denial.message for denial in claims.denials.by_path.values()]
        is_hopeless = words and all(claimed.outcome is WriteOutcome.FAILED for claimed in results)
        if is_hopeless and self._holds_nothing():
            self._end(
                f"{words[0]}; we are {self._user}, and leave the group so that other members can read: "
                f"{AUTHORIZATION_ADVICE}"
            )

    def report_denials(self, denials: DenialCollector) -> None:
        """Log each denied request once."""
        for denial in denials.by_path.values():
            if denial.message and denial.message not in self._logged:
                self._logged.add(denial.message)
                log.warning(
                    "not-authorized path=%s who=%r reason=%r: %s",
                    denial.path,
                    self._user,
                    denial.message,
                    AUTHORIZATION_ADVICE,
                )
