"""Every path that is read or written below the chroot, and the names that are valid in a path.  Pure.

    /consumers/G/ids/C                 the registration of a member (ephemeral)
    /consumers/G/owners/T/P            the owner of a partition (ephemeral)
    /consumers/G/owners/T/P/fenced     child of a fence; prevents a delete of the fence without a check
    /consumers/G/offsets/T/P           the committed offset
    /brokers/ids/N                     the brokers
    /brokers/topics/T                  a topic's partitions
    /brokers/topics/T/partitions/P/state
    /zkconsumer/groups/G               the control znode: the authority of a migrating group
    /zkconsumer/groups/G/N             data of the migration: the plan, the journal, the members that acknowledged
    /zkconsumer/spark/G/Q/T/P          the claims of a Spark query's batches for a partition
    /zkconsumer/spark/G/@pipeline      how often a pipeline was registered in the group
    /zkconsumer/spark/G/@pipeline/run  the pipeline that reads the group (ephemeral)

Only this module builds paths, and it checks each name in them: no input leads outside these folders.
"""

from __future__ import annotations

import re
from functools import lru_cache

from zkconsumer.errors import InvalidNameError
from zkconsumer.types import TopicPartition

CONSUMERS = "/consumers"
BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONTROL_GROUPS = "/zkconsumer/groups"
CONTROL_MEMBERS = "members"
"""The child of a control znode below which the participants of a ``dual`` migration acknowledge its phases."""

SPARK_CLAIMS = "/zkconsumer/spark"

TOPIC_CHARS_MAX = 249
"""Maximum length of a topic name, in Kafka."""

NAME_CHARS_MAX = 1_000
"""Maximum length of a group, client or consumer id; the Scala consumer has no limit except ZooKeeper's packet."""

QUERY_CHARS_MAX = 100
"""Maximum length of the id of a Spark query: a UUID has 36 characters."""

PARTITION_MAX = 2**31 - 1

_KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]*")
# The characters of a path component that ZooKeeper allows.
_COMPONENT = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")
_CONTROL_CHILD = re.compile(r"[a-z][a-z0-9-]{0,63}")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,9}")
_DOTS = (".", "..")

NAMES_KEPT_MAX = 1_024
"""How many valid names and numbers are cached: in each rebalance, a member checks its group and its topics for each
partition."""


# --- names ------------------------------------------------------------------------------------------------------


def check_group(group: str) -> str:
    """Return the group id, or raise ``InvalidNameError``: letters, digits, ``.``, ``_``, ``-``; not ``.`` or ``..``."""
    if not group or group in _DOTS:
        raise InvalidNameError(f"group id {group!r} is not a name")
    return _check_charset("group id", group, NAME_CHARS_MAX)


def is_group(name: str) -> bool:
    """Whether ``check_group`` accepts it.  Brokers coordinate groups of other names, too, such as ``app:v1``."""
    try:
        check_group(name)
    except InvalidNameError:
        return False
    return True


def check_topic(name: str) -> str:
    """Return the topic, or raise ``InvalidNameError``: like a group id, 1 to 249 characters."""
    if not name or name in _DOTS:
        raise InvalidNameError(f"topic {name!r} is not a name")
    return _check_charset("topic", name, TOPIC_CHARS_MAX)


def check_query(query: str) -> str:
    """Return the id of a Spark query, or raise ``InvalidNameError``: like a group id, 1 to 100 characters."""
    if not query or query in _DOTS:
        raise InvalidNameError(f"query id {query!r} is not a name")
    return _check_charset("query id", query, QUERY_CHARS_MAX)


def check_client_id(client_id: str) -> str:
    """Return the client id, or raise ``InvalidNameError``.  It is not part of a path and may be empty."""
    return _check_charset("client id", client_id, NAME_CHARS_MAX)


def check_consumer_id(consumer_id: str) -> str:
    """Return the consumer id, or raise ``InvalidNameError``: any text that is valid as one path component.

    The Scala consumer does not check ``consumer.id``, so the ids of other members may contain such characters.
    """
    is_one = _COMPONENT.fullmatch(consumer_id) is not None and consumer_id not in _DOTS
    if not is_one or len(consumer_id) > NAME_CHARS_MAX:
        raise InvalidNameError(f"consumer id {consumer_id[:200]!r} is not one component of a path")
    return consumer_id


@lru_cache(NAMES_KEPT_MAX)
def _check_charset(what: str, name: str, chars_max: int) -> str:
    if len(name) > chars_max:
        raise InvalidNameError(f"{what} {name[:50]!r}… has {len(name)} characters, at most {chars_max} are allowed")
    if _KAFKA_NAME.fullmatch(name) is None:
        raise InvalidNameError(f"{what} {name!r} may contain only letters, digits, '.', '_' and '-'")
    return name


def _check_partition(partition: int) -> int:
    if not 0 <= partition <= PARTITION_MAX:
        raise InvalidNameError(f"partition {partition} is not between 0 and {PARTITION_MAX}")
    return partition


# --- paths ------------------------------------------------------------------------------------------------------


def group_root(group: str) -> str:
    """The node that old tools delete when they delete a group."""
    return f"{CONSUMERS}/{check_group(group)}"


def ids(group: str) -> str:
    """The parent of the registrations of the members."""
    return f"{CONSUMERS}/{check_group(group)}/ids"


def registration(group: str, consumer_id: str) -> str:
    """The registration of a member."""
    return f"{ids(group)}/{check_consumer_id(consumer_id)}"


def owners(group: str) -> str:
    """The parent of the topics with owner nodes."""
    return f"{CONSUMERS}/{check_group(group)}/owners"


def owners_of_topic(group: str, topic: str) -> str:
    """The parent of the owner nodes of a topic."""
    return f"{owners(group)}/{check_topic(topic)}"


def owner(group: str, tp: TopicPartition) -> str:
    """The owner node of a partition."""
    return f"{owners(group)}/{check_topic(tp.topic)}/{_check_partition(tp.partition)}"


def fence_child(group: str, tp: TopicPartition) -> str:
    """The child of a fence, the persistent node that a partition has instead of its owner node."""
    return f"{owner(group, tp)}/fenced"


def offsets(group: str) -> str:
    """The parent of the topics with offsets."""
    return f"{CONSUMERS}/{check_group(group)}/offsets"


def offsets_of_topic(group: str, topic: str) -> str:
    """The parent of the offset znodes of a topic."""
    return f"{offsets(group)}/{check_topic(topic)}"


def offset(group: str, tp: TopicPartition) -> str:
    """The offset znode of a partition."""
    return f"{offsets(group)}/{check_topic(tp.topic)}/{_check_partition(tp.partition)}"


def control(group: str) -> str:
    """The control znode of a group; not below ``/consumers``, because old tools delete nodes there."""
    return f"{CONTROL_GROUPS}/{check_group(group)}"


def control_child(group: str, name: str) -> str:
    """A child of the control znode; ``name``: lower-case letters, digits, ``-``."""
    if _CONTROL_CHILD.fullmatch(name) is None:
        raise InvalidNameError(f"{name[:200]!r} is not a name of a child of a control znode")
    return f"{control(group)}/{name}"


def claims(group: str) -> str:
    """The parent of the Spark queries with claims in this group; not below ``/consumers`` either."""
    return f"{SPARK_CLAIMS}/{check_group(group)}"


def claims_of_query(group: str, query: str) -> str:
    """The parent of the topics with claims of a query."""
    return f"{claims(group)}/{check_query(query)}"


def claims_of_topic(group: str, query: str, topic: str) -> str:
    """The parent of the partitions with claims of a query."""
    return f"{claims_of_query(group, query)}/{check_topic(topic)}"


def claims_of_partition(group: str, query: str, tp: TopicPartition) -> str:
    """The claims of a query's last batches for one partition."""
    return f"{claims_of_topic(group, query, tp.topic)}/{_check_partition(tp.partition)}"


def pipelines(group: str) -> str:
    """The parent of the registration of a pipeline; ``@`` is not allowed in the id of a query."""
    return f"{claims(group)}/@pipeline"


def running_pipeline(group: str) -> str:
    """The registration of the pipeline that reads the group."""
    return f"{pipelines(group)}/run"


def broker(broker_id: int) -> str:
    """The registration of a broker."""
    if not 0 <= broker_id <= PARTITION_MAX:
        raise InvalidNameError(f"broker id {broker_id} is not between 0 and {PARTITION_MAX}")
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """The znode with the partitions of a topic."""
    return f"{BROKER_TOPICS}/{check_topic(name)}"


def partition_state(tp: TopicPartition) -> str:
    """The znode with the leader of a partition; for tools: the consumer never reads it."""
    return f"{topic(tp.topic)}/partitions/{_check_partition(tp.partition)}/state"


def parents(path: str) -> list[str]:
    """The ancestors of a path that may not exist yet; the topmost first, without ``/``."""
    return [path[:tp] for tp in range(1, len(path)) if path[tp] == "/"]


# --- from paths to names ----------------------------------------------------------------------------------------


def topic_of(path: str) -> str | None:
    """The topic of ``/brokers/topics/T``; None for any other path."""
    head, _, name = path.rpartition("/")
    return name if head == BROKER_TOPICS and _is_topic(name) else None


def partition_of(path: str) -> TopicPartition | None:
    """The partition of an owner, offset or partition state node; None for any other path."""
    match path.split("/"):
        case ["", "consumers", _, "owners" | "offsets", name, number]:
            pass
        case ["", "brokers", "topics", name, "partitions", number, "state"]:
            pass
        case _:
            return None
    partition = partition_number(number)
    return None if partition is None or not _is_topic(name) else TopicPartition(name, partition)


def partition_number(name: str) -> int | None:
    """A child's name as a partition number: plain decimal, no sign, no padding; None for anything else."""
    return _number_of(name)


@lru_cache(NAMES_KEPT_MAX)
def _number_of(name: str) -> int | None:
    if _DECIMAL.fullmatch(name) is None or int(name) > PARTITION_MAX:
        return None
    return int(name)


def _is_topic(name: str) -> bool:
    return 0 < len(name) <= TOPIC_CHARS_MAX and name not in _DOTS and _KAFKA_NAME.fullmatch(name) is not None
