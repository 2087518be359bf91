"""Groups at random, and what the assignors of Kafka's own client make of them.

    python -m tests.java_assignment_cases        asks Java, and writes tests/data/java-assignments.jsonl anew

A group is one line of words, as ``zkconsumer/testing/java/Assignors.java`` reads it.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bridge.client.assignors import ASSIGNORS
from bridge.client.assignors.sticky import cooperative_member_data, sticky_member_data
from bridge.client.assignors.user_data import encode_generation, encode_previous
from zkconsumer.kafka.group.partition_assignor import Subscription
from zkconsumer.testing.sandbox.artifacts import ensure_artifact_set
from zkconsumer.testing.sandbox.java import compiled, find_jdk
from zkconsumer.types import TopicPartition

RECORDED = Path(__file__).parent / "data" / "java-assignments.jsonl"
RECORDED_GROUPS = 300
RELEASE = "3.9.1"
PROGRAM = "Assignors"
TIMEOUT_S = 120


@dataclass(frozen=True)
class Case:
    """One group, and who divides."""

    assignor: str
    topics: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]]
    members: Mapping[str, Subscription]

    def line(self) -> str:
        """As Java reads it."""
        racks = ",".join(f"{tp.topic}:{tp.partition}={'+'.join(sorted(on))}" for tp, on in self.racks.items())
        topics = ",".join(f"{topic}:{count}" for topic, count in self.topics.items())
        return " ".join([self.assignor, topics or "-", racks or "-", *map(_member, self.members.items())])

    def ours(self) -> dict[str, tuple[TopicPartition, ...]]:
        """What our assignor makes of it."""
        done = ASSIGNORS[self.assignor]().assign(self.topics, self.members, self.racks)
        return {member: each.partitions for member, each in done.items()}


def case_of(line: str) -> Case:
    """What ``Case.line`` wrote."""
    assignor, topics, racks, *members = line.split(" ")
    return Case(
        assignor,
        {topic: int(count) for topic, count in (each.split(":") for each in _list(topics))},
        {
            partition(where): frozenset(filter(None, on.split("+")))
            for where, on in (each.split("=") for each in _list(racks))
        },
        dict(map(_subscription, members)),
    )


def shares_of(said: str) -> dict[str, tuple[TopicPartition, ...]] | None:
    """What Java said; None where it broke off."""
    if said.startswith("broken"):
        return None
    return {
        member: tuple(map(partition, _list(share))) for member, share in (each.split("=") for each in said.split(" "))
    }


def faults(case: Case, shares: Mapping[str, Sequence[TopicPartition]]) -> list[str]:
    """What no assignment may have: a partition of two members, of one that does not want it, that there is not."""
    found = [f"{tp} twice" for tp, n in Counter(tp for share in shares.values() for tp in share).items() if n > 1]
    for member, share in shares.items():
        found += [f"{tp} unwanted" for tp in share if tp.topic not in case.members[member].topics]
        found += [f"{tp} not there" for tp in share if not 0 <= tp.partition < case.topics.get(tp.topic, 0)]
    return found


def missing(case: Case, shares: Mapping[str, Sequence[TopicPartition]]) -> set[TopicPartition]:
    """What somebody wants and nobody got; cooperative groups give what moves in the next generation."""
    wanted = {topic for each in case.members.values() for topic in each.topics}
    everything = {TopicPartition(topic, n) for topic in wanted for n in range(case.topics.get(topic, 0))}
    return everything.difference(*shares.values())


def is_followed(case: Case) -> bool:
    """Whether ours must do exactly what Kafka's does: see ``bridge.client.assignors.sticky``."""
    if "sticky" not in case.assignor:
        return True
    claims = {
        member: sticky_member_data(each) if case.assignor == "sticky" else cooperative_member_data(each)
        for member, each in case.members.items()
    }
    nobody_wants_nothing = all(each.topics for each in case.members.values())
    latest = max(-1 if each.generation is None else each.generation for each in claims.values())
    for member, each in claims.items():
        is_earlier = each.generation is None or each.generation < latest
        for tp in each.partitions:
            if tp.partition >= case.topics.get(tp.topic, tp.partition + 1):
                return False
            if is_earlier and tp.topic not in case.members[member].topics:
                return False
    return nobody_wants_nothing


def moving(case: Case, shares: Mapping[str, Sequence[TopicPartition]]) -> set[TopicPartition]:
    """What a member says it has, and has no more."""
    return {tp for member, each in case.members.items() for tp in each.owned_partitions if tp not in shares[member]}


def groups(count: int, seed: int) -> Iterator[Case]:
    """Groups of every kind: large and small, alike and not, with and without racks, with true and false memories."""
    rng = Random(seed)
    for _ in range(count):
        yield _group(rng)


def answers(cases: Sequence[str], release: str = RELEASE) -> list[str]:
    """What Java answers to these lines."""
    jars = ensure_artifact_set(release)
    classes = compiled((PROGRAM,), jars)
    # Without any binding of slf4j, which would log to where the answers are.
    needed = [classes, *jars.glob("kafka-clients-*.jar"), *jars.glob("slf4j-api-*.jar")]
    command = [find_jdk().java, "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, needed)), PROGRAM]
    lines = "".join(f"{case}\n" for case in cases)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout.splitlines()


def recorded() -> Iterator[tuple[Case, str]]:
    """Groups, and what Java said."""
    for line in RECORDED.read_text().splitlines():
        asked, said = json.loads(line)
        yield case_of(asked), said


def record() -> None:
    """Ask Java, and write the file."""
    lines = [case.line() for case in groups(RECORDED_GROUPS, 0)]
    RECORDED.write_text("".join(json.dumps(row) + "\n" for row in zip(lines, answers(lines), strict=True)))


def partition(text: str) -> TopicPartition:
    """topic:partition"""
    topic, number = text.split(":")
    return TopicPartition(topic, int(number))


def _list(text: str) -> list[str]:
    return [] if text in ("-", "") else text.split(",")


def _member(member: tuple[str, Subscription]) -> str:
    name, each = member
    owned = ",".join(f"{tp.topic}:{tp.partition}" for tp in each.owned_partitions)
    data = "-" if each.user_data is None else each.user_data.hex()
    parts = [name, ",".join(each.topics) or "-", data, owned or "-", str(each.generation_id)]
    return ";".join([*parts, each.rack_id or "-", each.group_instance_id or "-"])


def _subscription(text: str) -> tuple[str, Subscription]:
    name, topics, data, owned, generation, rack, instance = text.split(";")
    return name, Subscription(
        topics=tuple(_list(topics)),
        user_data=None if data == "-" else bytes.fromhex(data),
        owned_partitions=tuple(map(partition, _list(owned))),
        generation_id=int(generation),
        rack_id=None if rack == "-" else rack,
        group_instance_id=None if instance == "-" else instance,
    )


def _group(rng: Random) -> Case:
    assignor = rng.choice(["range", "roundrobin", "sticky", "sticky", "cooperative-sticky", "cooperative-sticky"])
    count = rng.choice((1, 2, 3, 5, 16))
    topics = {f"{rng.choice('abcxyz')}{n}": rng.choice((1, 2, 3, 5, 8, 13)) for n in range(count)}
    names = [f"m{rng.randrange(10**6)}" for _ in range(rng.choice((1, 2, 3, 4, 5, 7, 14, 30)))]
    rack_names = [f"r{n}" for n in range(rng.choice((2, 3)))] if rng.random() < 0.4 else []
    racks = {
        TopicPartition(topic, n): frozenset(rng.sample(rack_names, rng.randint(0, len(rack_names))))
        for topic, count in topics.items()
        for n in range(count)
        if rack_names
    }
    alike = rng.random() < 0.5
    wanted = rng.sample(sorted(topics), rng.randint(1, len(topics)))
    before = _before(rng, topics, names)
    members: dict[str, Subscription] = {}
    for name in dict.fromkeys(names):
        mine = wanted if alike else rng.sample(sorted(topics), rng.randint(1, len(topics)))
        if not alike and rng.random() < 0.1:
            mine = [*mine, "nowhere"]
        if not alike and rng.random() < 0.02:
            mine = []
        forgets = rng.random() < 0.95
        had = tuple(tp for tp in before.get(name, ()) if tp.topic in mine or not forgets)
        generation = rng.choice((5, 5, 5, 5, 4, 3, -1))
        members[name] = Subscription(
            topics=tuple(rng.sample(mine, len(mine))),
            user_data=_user_data(rng, assignor, had, generation),
            owned_partitions=had if assignor == "cooperative-sticky" else (),
            generation_id=rng.choice((generation, generation, -1)),
            rack_id=rng.choice(rack_names) if rack_names and rng.random() < 0.9 else None,
            group_instance_id=f"i{rng.randrange(10**6)}" if rng.random() < 0.2 else None,
        )
    return Case(assignor, topics, racks, members)


def _before(rng: Random, topics: Mapping[str, int], names: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """Who had what: some members had nothing, some partitions two owners, some there are no more."""
    before: dict[str, list[TopicPartition]] = {}
    old = [name for name in names if rng.random() < 0.7]
    claimed_twice = rng.choice((0, 0, 0.1))
    gone = rng.choice((0, 0, 0, 0.02))
    for topic, count in topics.items():
        for n in range(count):
            for _ in range(1 + (rng.random() < claimed_twice)):
                if old and rng.random() < 0.9:
                    number = n + count if rng.random() < gone else n
                    before.setdefault(rng.choice(old), []).append(TopicPartition(topic, number))
    return before


def _user_data(rng: Random, assignor: str, had: Sequence[TopicPartition], generation: int) -> bytes | None:
    if assignor not in ("sticky", "cooperative-sticky") or (not had and rng.random() < 0.5):
        return None
    if rng.random() < 0.03:
        return rng.randbytes(rng.randrange(8))
    if assignor == "cooperative-sticky":
        return encode_generation(generation)
    data = encode_previous(had, generation)
    return data[:-4] if rng.random() < 0.1 else data


if __name__ == "__main__":
    record()
