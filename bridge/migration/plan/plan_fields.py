"""The parts of a plan's first line, to JSON and back: partitions, access lists, members, brokers.  Pure."""

from __future__ import annotations

from bridge.migration.inspect.group_snapshot import BrokerSnapshot, RegistrationSnapshot
from bridge.migration.plan.json_object_reader import (
    InvalidJsonError,
    JsonObjectReader,
    JsonValue,
    as_list,
    as_number,
    as_text,
)
from zkconsumer.kafka.coordinator_groups import CoordinatorGroup, CoordinatorGroupMember
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ALL, Acl
from zkconsumer.zk.znode_formats import Authority, ControlRecord

NAME_CHARS_MAX = 1_000
INT32_MAX = 2**31 - 1


def parse_partition(value: JsonValue, where: str) -> TopicPartition:
    """A partition: its topic and its number."""
    topic, partition = as_list(value, where, 2)
    name = as_text(topic, where, NAME_CHARS_MAX)
    if not _is_topic(name):
        raise InvalidJsonError(f"{where}: {name[:200]!r} is no topic")
    return TopicPartition(name, as_number(partition, where, 0, INT32_MAX))


def check_fenced_path(group: str, path: str) -> str:
    """The path, if a fence of this group changes that node.  Raises ``InvalidJsonError``."""
    match path.removeprefix(f"{paths.group_root(group)}/").split("/"):
        case ["ids" | "owners" | "offsets"]:
            rebuilt = path
        case ["owners", topic]:
            rebuilt = paths.owners_of_topic(group, topic) if _is_topic(topic) else ""
        case ["offsets", topic]:
            rebuilt = paths.offsets_of_topic(group, topic) if _is_topic(topic) else ""
        case ["offsets", topic, number]:
            partition = paths.partition_number(number)
            is_one = partition is not None and _is_topic(topic)
            rebuilt = paths.offset(group, TopicPartition(topic, partition or 0)) if is_one else ""
        case _:
            rebuilt = ""
    if rebuilt != path or not path.startswith(f"{paths.group_root(group)}/"):
        raise InvalidJsonError(f"'acls': {path[:200]!r} is no node that a fence of group {group} changes")
    return path


def _is_topic(name: str) -> bool:
    return paths.topic_of(f"{paths.BROKER_TOPICS}/{name}") == name


def parse_acl(value: JsonValue) -> tuple[Acl, ...]:
    """One access list."""
    found = []
    for each in as_list(value, "acl_lists"):
        perms, scheme, name = as_list(each, "acl_lists", 3)
        found.append(
            Acl(
                as_number(perms, "acl_lists", 0, PERM_ALL),
                as_text(scheme, "acl_lists", NAME_CHARS_MAX),
                as_text(name, "acl_lists", NAME_CHARS_MAX),
            )
        )
    return tuple(found)


def format_member(one: RegistrationSnapshot) -> dict[str, JsonValue]:
    """A member of the old group."""
    return {
        "consumer_id": one.consumer_id,
        "kind": one.kind,
        "host": one.host,
        "pattern": one.pattern,
        "topics": dict(one.topics),
        "problem": one.error,
    }


def parse_member(members: JsonObjectReader) -> RegistrationSnapshot:
    """The same, back."""
    member = RegistrationSnapshot(
        members.text("consumer_id"),
        members.text("kind", NAME_CHARS_MAX),
        members.nullable("host", members.text),
        members.text("pattern", NAME_CHARS_MAX),
        {topic: as_number(threads, "topics", 0, INT32_MAX) for topic, threads in members.take_entries("topics")},
        members.text("problem"),
    )
    members.reject_unknown_keys()
    return member


def format_plan_control(control: ControlRecord) -> dict[str, JsonValue]:
    """The control znode."""
    return {
        "id": control.migration_id,
        "epoch": control.epoch,
        "phase": control.phase,
        "authority": control.authority,
        "strategy": control.strategy,
    }


def parse_plan_control(members: JsonObjectReader) -> ControlRecord:
    """The same, back."""
    control = ControlRecord(
        members.text("id", NAME_CHARS_MAX),
        members.number("epoch"),
        members.text("phase", NAME_CHARS_MAX),
        _authority(members.text("authority", NAME_CHARS_MAX)),
        members.text("strategy", NAME_CHARS_MAX),
    )
    members.reject_unknown_keys()
    return control


def _authority(word: str) -> Authority:
    match word:
        case "zookeeper" | "kafka":
            return word
    raise InvalidJsonError(f"'control': {word[:50]!r} is no authority")


def format_coordinator_group(group: CoordinatorGroup) -> dict[str, JsonValue]:
    """The coordinator group of the same name."""
    return {
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "members": [
            {
                "member_id": one.member_id,
                "client_id": one.client_id,
                "host": one.host,
                "instance_id": one.instance_id,
                "topics": list(one.topics),
                "partitions": [[tp.topic, tp.partition] for tp in one.partitions],
                "problem": one.problem,
            }
            for one in group.members
        ],
    }


def parse_coordinator_group(members: JsonObjectReader) -> CoordinatorGroup:
    """The same, back."""
    group = CoordinatorGroup(
        state=members.text("state", NAME_CHARS_MAX),
        protocol_type=members.text("protocol_type"),
        members=tuple(_parse_coordinator_member(JsonObjectReader(each, "modern")) for each in members.items("members")),
        protocol=members.text("protocol"),
    )
    members.reject_unknown_keys()
    return group


def _parse_coordinator_member(members: JsonObjectReader) -> CoordinatorGroupMember:
    member = CoordinatorGroupMember(
        members.text("member_id"),
        members.text("client_id"),
        members.text("host"),
        members.nullable("instance_id", members.text),
        members.texts("topics"),
        tuple(parse_partition(each, "modern") for each in members.items("partitions")),
        members.text("problem"),
    )
    members.reject_unknown_keys()
    return member


def parse_plan_broker(value: JsonValue) -> BrokerSnapshot:
    """A broker."""
    name, has_groups, words = as_list(value, "brokers", 3)
    if has_groups is not None and not isinstance(has_groups, bool):
        raise InvalidJsonError("'brokers': whether it has groups is true, false or null")
    return BrokerSnapshot(
        as_text(name, "brokers", NAME_CHARS_MAX), has_groups, as_text(words, "brokers", NAME_CHARS_MAX)
    )
