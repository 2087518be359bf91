"""The broker's handlers of requests: one table, API -> handler.  Pure.

    ApiRequest --> KafkaApis.handlers[api key] --+--> a handler of the broker (logs, topics, metadata)
                                                 '--> rights (30), topics (29, 3), version 0 (ZooKeeper)
                                                      --> GroupCoordinator

Kafka's ``KafkaApis`` (0.8 and later).  It makes the checks that need more than the coordinator's state, in this order:
whether the client may use the group, whether it may use each topic, whether each topic exists.  Then the machine has
its own checks (``GroupCoordinator``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bridge.coordinator.api_request import (
    NO_TRANSACTIONS,
    AclOperation,
    ApiHandler,
    ApiRequest,
    BrokerServices,
)
from bridge.coordinator.group_error_responses import error_response
from bridge.coordinator.group_responses import describe_group_error
from bridge.coordinator.offset_apis import OffsetApis
from bridge.coordinator.partitioning import partition_for
from zkconsumer.kafka.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_REQUEST,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode,
)
from zkconsumer.wire.schemas import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.delete_groups import DeletedGroup
from zkconsumer.wire.schemas.find_coordinator import BATCHED_FROM, KEY_TYPE_GROUP, Coordinator, FindCoordinatorResponse

KEY_IS_TRANSACTIONAL_ID = 1


class KafkaApis:
    """The handlers of one broker.  ``handlers``: API key → handler; ``other_handlers`` are those of APIs without a
    group.
    """

    def __init__(self, broker: BrokerServices, other_handlers: Mapping[int, ApiHandler]) -> None:
        self._broker = broker
        offsets = OffsetApis(broker)
        self.handlers: dict[int, ApiHandler] = {
            **other_handlers,
            FIND_COORDINATOR.key: self.handle_find_coordinator_request,
            JOIN_GROUP.key: self.handle_group_member_request,
            SYNC_GROUP.key: self.handle_group_member_request,
            HEARTBEAT.key: self.handle_group_member_request,
            LEAVE_GROUP.key: self.handle_group_member_request,
            DESCRIBE_GROUPS.key: self.handle_describe_groups_request,
            LIST_GROUPS.key: self.handle_list_groups_request,
            DELETE_GROUPS.key: self.handle_delete_groups_request,
            OFFSET_COMMIT.key: offsets.handle_offset_commit_request,
            OFFSET_FETCH.key: offsets.handle_offset_fetch_request,
            OFFSET_DELETE.key: offsets.handle_offset_delete_request,
        }

    def handle(self, call: ApiRequest) -> None:
        """Answer a request of an API of this broker's release, now or later."""
        self.handlers[call.api.key](call)

    # --- find the coordinator -----------------------------------------------------------------------------------

    def handle_find_coordinator_request(self, call: ApiRequest) -> None:
        """Version 4 and later have several keys, earlier ones have one."""
        body = call.body
        keys = body.coordinator_keys if call.version >= BATCHED_FROM else [body.key]
        found = [self._coordinator(call, body.key_type, key) for key in keys]
        if call.version >= BATCHED_FROM:
            call.reply(FindCoordinatorResponse(coordinators=found))
            return
        [one] = found
        call.reply(
            FindCoordinatorResponse(
                error_code=one.error_code,
                error_message=one.error_message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        )

    def _coordinator(self, call: ApiRequest, key_type: int, key: str) -> Coordinator:
        if key_type == KEY_IS_TRANSACTIONAL_ID:
            return _coordinator_error(key, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        if key_type != KEY_TYPE_GROUP:
            return _coordinator_error(key, INVALID_REQUEST, f"the coordinator type {key_type} is not supported here")
        denied = self._broker.group_error(call, AclOperation.DESCRIBE, key)
        if denied is not NONE:
            return _coordinator_error(key, denied)
        partitions = self._broker.ensure_offsets_topic()
        if partitions is None:
            return _coordinator_error(key, COORDINATOR_NOT_AVAILABLE)
        address = self._broker.coordinator_address(partition_for(key, partitions), call.listener)
        if address is None:
            return _coordinator_error(key, COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key=key, node_id=address.broker_id, host=address.host, port=address.port)

    # --- members and groups -------------------------------------------------------------------------------------

    def handle_group_member_request(self, call: ApiRequest) -> None:
        """JoinGroup, SyncGroup, Heartbeat, LeaveGroup: for clients with READ on the group."""
        denied = self._broker.group_error(call, AclOperation.READ, call.body.group_id)
        if denied is NONE:
            self._broker.submit_to_coordinator(call, call.body, call.reply)
        else:
            call.reply(error_response(call.api, call.version, call.body, denied))

    def handle_list_groups_request(self, call: ApiRequest) -> None:
        """Only the groups that the client may describe."""

        def reply(body: Any) -> None:
            body.groups = [
                g for g in body.groups if self._broker.group_error(call, AclOperation.DESCRIBE, g.group_id) is NONE
            ]
            call.reply(body)

        self._broker.submit_to_coordinator(call, call.body, reply)

    def handle_describe_groups_request(self, call: ApiRequest) -> None:
        """Asks the coordinator for the groups that the client may describe."""
        denied = self._denied_groups(call, AclOperation.DESCRIBE, call.body.groups)

        def reply(body: Any) -> None:
            by_group_id = {group.group_id: group for group in body.groups}
            by_group_id |= {name: describe_group_error(name, error.code) for name, error in denied.items()}
            body.groups = [by_group_id[name] for name in dict.fromkeys(call.body.groups)]
            call.reply(body)

        if not denied:
            self._broker.submit_to_coordinator(call, call.body, call.reply)
            return
        allowed = [name for name in call.body.groups if name not in denied]
        self._broker.submit_to_coordinator(call, replace(call.body, groups=allowed), reply)

    def handle_delete_groups_request(self, call: ApiRequest) -> None:
        """Asks the coordinator to delete the groups that the client may delete."""
        denied = self._denied_groups(call, AclOperation.DELETE, call.body.groups_names)

        def reply(body: Any) -> None:
            body.results = [
                *body.results,
                *(DeletedGroup(group_id=name, error_code=error.code) for name, error in denied.items()),
            ]
            call.reply(body)

        allowed = [name for name in call.body.groups_names if name not in denied]
        self._broker.submit_to_coordinator(
            call, replace(call.body, groups_names=allowed), reply if denied else call.reply
        )

    def _denied_groups(self, call: ApiRequest, operation: AclOperation, names: list[str]) -> dict[str, ErrorCode]:
        errors = {name: self._broker.group_error(call, operation, name) for name in names}
        return {name: error for name, error in errors.items() if error is not NONE}


def _coordinator_error(key: str, code: ErrorCode, words: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code.code, error_message=words)
