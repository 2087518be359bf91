"""``zkconsumer assign``: computes which member owns which partition, without a server.

The groups take the same path as in production: every registration is serialized to the bytes of its znode and parsed
again, becomes a subscription, and each member computes its own assignment.
"""

from __future__ import annotations

import json
import sys
from typing import Any, BinaryIO, Literal

import click

from zkconsumer.cli.options import choice_option
from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.member.group_assignment import (
    AssignmentContext,
    AssignmentError,
    AssignorVariant,
    GroupAssignment,
    create_instance,
)
from zkconsumer.member.topic_count import THREADS_PER_TOPIC_MAX, TopicCount, construct_topic_count
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import Registration, format_registration, parse_registration

PARTITION_MAX = 2**31 - 1


class AssignInputError(ValueError):
    """A line of the input is not a group; the text says why."""


@click.command()
@click.argument("groups", type=click.File("rb"), default="-", metavar="[FILE]")
@choice_option("--strategy", ["range", "roundrobin"], "range", "partition.assignment.strategy of all members.")
@click.option(
    "--compatibility", type=click.Choice([form.compatibility for form in AssignorVariant if form.compatibility]),
    default="0.10.2", show_default=True, help="Compute roundrobin as this release and later ones do.",
)  # fmt: skip
def assign(groups: BinaryIO, strategy: str, compatibility: str) -> None:
    """Compute which member would own which partition.

    FILE (or standard input) contains one group on each line, as JSON:

    \b
    {"name": "g", "members": {"g_a": {"clicks": 2}, "g_b": {"clicks": 1}},
     "partitions": {"clicks": [0, 1, 2]}}

    List the members in the order in which ZooKeeper lists them. A member has a number of threads for each topic, or a
    filter: {"g_c": {"white_list": {"cl.*": 2}}}, or black_list. "partitions" lists all topics of the cluster. The
    output has one line for each group:

    \b
    {"name": "g", "assignment": {"clicks/0": "g_a-0", "clicks/1": "g_a-1", …}}
    {"name": "g", "error": "why"}
    """
    file = getattr(groups, "name", "<stdin>")
    for number, line in enumerate(groups, start=1):
        if not line.strip():
            continue
        try:
            answer = _assignment_json(_group(line.strip()), strategy, compatibility)
        except (AssignInputError, ZkConsumerError) as error:
            raise UsageError(f"{file}, line {number}: {error}") from error
        sys.stdout.write(json.dumps(answer) + "\n")


def _assignment_json(group: dict[str, Any], strategy: str, compatibility: str) -> dict[str, Any]:
    try:
        owners = _owners(group["members"], group["partitions"], strategy, compatibility)
    except AssignmentError as error:
        return {"name": group["name"], "error": str(error)}
    return {"name": group["name"], "assignment": {str(tp): owners[tp] for tp in sorted(owners)}}


def _owners(
    members: dict[str, dict[str, int]], partitions: dict[str, list[int]], strategy: str, compatibility: str
) -> dict[TopicPartition, str]:
    """Return the owner of each partition.  Raises ``AssignmentError`` also when two members acquire the same one."""
    registrations = {member: _read_back(member, subscription) for member, subscription in members.items()}
    assignor = create_instance(strategy, compatibility)

    def computed_by(member: str) -> GroupAssignment:
        return assignor.assign(AssignmentContext(member, registrations, partitions))

    first = computed_by(next(iter(members), ""))
    if not first.topics_with_hash_collision:
        return {tp: str(thread) for tp, thread in first.owners.items()}
    # The members compute the same assignment, unless names of topics have equal hashes.
    owners: dict[TopicPartition, str] = {}
    for member in members:
        for tp, thread in computed_by(member).own.items():
            other = owners.setdefault(tp, str(thread))
            if other != str(thread):
                raise AssignmentError(
                    f"{other} and {thread} both claim {tp}: the hashes of some topics are equal "
                    f"({', '.join(sorted(first.topics_with_hash_collision))}), and the members have them in different "
                    "orders"
                )
    return owners


def _read_back(member: str, subscription: dict[str, Any]) -> TopicCount:
    kind = _filter_kind(subscription)
    registration = Registration("static", subscription) if kind is None else Registration(kind, subscription[kind])
    read = parse_registration(format_registration(registration))
    return construct_topic_count(member, read.pattern, read.subscription)


def _filter_kind(subscription: dict[str, Any]) -> Literal["white_list", "black_list"] | None:
    """The kind of filter, or None.  A topic with that name has a number as its value, not an object."""
    match subscription:
        case {"white_list": dict()}:
            return "white_list"
        case {"black_list": dict()}:
            return "black_list"
    return None


# --- reading a line -----------------------------------------------------------------------------------------------


def _group(line: bytes) -> dict[str, Any]:
    try:
        group = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise AssignInputError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise AssignInputError(f"is not JSON: {error.msg} at character {error.pos + 1}") from error
    except (RecursionError, ValueError) as error:
        raise AssignInputError(f"is not JSON that can be read: {error}") from error
    if not isinstance(group, dict):
        raise AssignInputError("is not a JSON object")
    for key, what in (("name", "a text"), ("members", "an object"), ("partitions", "an object")):
        if key not in group:
            raise AssignInputError(f'has no "{key}"')
        if not isinstance(group[key], str if key == "name" else dict):
            raise AssignInputError(f'"{key}" is not {what}')
    for member, subscription in group["members"].items():
        _check_subscription(member, subscription)
    for topic, numbers in group["partitions"].items():
        _check_partitions(topic, numbers)
    return group


def _check_subscription(member: str, subscription: object) -> None:
    if not isinstance(subscription, dict):
        raise AssignInputError(f"the member {member!r} has no object of topics and threads")
    wanted: dict[str, Any] = subscription
    kind = _filter_kind(wanted)
    if kind is not None:
        if len(wanted) > 1 or len(wanted[kind]) != 1:
            raise AssignInputError(f"the member {member!r} has a {kind} and something else; a filter is one pattern")
        wanted = wanted[kind]
    for topic, threads in wanted.items():
        if not _is_integer(threads, 1, THREADS_PER_TOPIC_MAX):
            raise AssignInputError(
                f"the member {member!r} has {threads!r} threads for {topic!r}; it must be 1 to {THREADS_PER_TOPIC_MAX}"
            )


def _check_partitions(topic: str, numbers: object) -> None:
    if not isinstance(numbers, list) or not all(_is_integer(number, 0, PARTITION_MAX) for number in numbers):
        raise AssignInputError(f"the partitions of {topic!r} are not a list of numbers from 0")
    if len(set(numbers)) < len(numbers):
        raise AssignInputError(f"the topic {topic!r} has a partition twice")


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
