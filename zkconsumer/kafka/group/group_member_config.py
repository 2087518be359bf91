"""``GroupMemberConfig``: the configuration of the machine of one group member.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkconsumer.config_def import JAVA_BLANKS, default_of, invalid_value_text, problems_text
from zkconsumer.config_tables.group_member_settings import MemberSettings, SharedSettings
from zkconsumer.configuration import settings_of
from zkconsumer.errors import InvalidConfigException

JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000
"""The time in addition to the rebalance timeout for the answer to JoinGroup (``AbstractCoordinator``)."""

MEMBER_SETTINGS = settings_of([MemberSettings])
"""Key -> setting that only a member of a coordinator group has, in the order of the table."""

GROUP_SETTINGS = settings_of([SharedSettings, MemberSettings])
"""Key -> setting of the group, in the order of the tables."""


class GroupMemberConfig(SharedSettings, MemberSettings):
    """The settings of one member: ``GroupMemberConfig({"group.id": "g", "session.timeout.ms": 10_000})``.

    Numbers and booleans may be given as text.  Raises ``InvalidConfigException`` with a line for each problem.
    """

    __slots__ = ("values",)

    def __init__(self, given: Mapping[str, object]) -> None:
        values: dict[str, Any] = {}
        problems = [f"{key} is not known: remove it" for key in given if key not in GROUP_SETTINGS]
        for key, setting in GROUP_SETTINGS.items():
            raw = given.get(key)
            values[key] = default_of(setting, values)
            if raw is None:
                if setting.default is ...:
                    problems.append(f"{key} is missing: set it; allowed is {setting.allowed}")
                continue
            try:
                values[key] = setting.parse(raw.strip(JAVA_BLANKS) if isinstance(raw, str) else raw)
            except ValueError as e:
                problems.append(invalid_value_text(setting, raw, str(e)))
        problems += MemberSettings.conflicts(values, frozenset(given))
        if problems:
            raise InvalidConfigException(problems_text(problems))
        self.values: Mapping[str, Any] = values

    @property
    def join_group_timeout_ms(self) -> int:
        """How long the member waits for the answer to JoinGroup, which arrives when all members have joined; in ms."""
        return max(self.request_timeout_ms, self.max_poll_interval_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS)

    @property
    def is_dynamic_member(self) -> bool:
        """Whether the member has no ``group.instance.id``, so that it leaves the group when it is closed."""
        return self.group_instance_id is None
