"""The commands, the situations in which they are called, and what is recorded of their end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bridge.testing.fake_environment import ADDRESS
from tests.commands.in_memory_cluster import NOWHERE, SITUATIONS, CommandWorld, Outcome

ALL_WELL = "all is well"
NO_GROUP, NO_TOPIC = "no such group", "no such topic"


@dataclass(frozen=True)
class Command:
    """``words`` with ``{group}`` and ``{topic}``; ``where``: the servers in its arguments.

    ``group``: that of the command where everything works.  ``is_json``: whether it has ``-o json``.
    """

    words: str
    where: str = "zookeeper"
    group: str = "g1"
    is_json: bool = True

    def can_be_in(self, situation: str) -> bool:
        """Whether the situation means anything for it."""
        if situation == NO_GROUP:
            return "{group}" in self.words
        if situation == NO_TOPIC:
            return "{topic}" in self.words
        return not (situation in ("ZooKeeper away", "no right") and self.where == "brokers")

    def call(self, world: CommandWorld, situation: str, *, as_json: bool = False) -> Outcome:
        """Call it in that situation."""
        group = "nosuch" if situation == NO_GROUP else self.group
        topic = "nosuch" if situation == NO_TOPIC else "clicks"
        words = self.words.format(group=group, topic=topic, folder=world.folder).split()
        words += self.address(world, situation)
        with world.situation(situation):
            return world.call((*words, *(("-o", "json") if as_json else ())))

    def address(self, world: CommandWorld, situation: str) -> list[str]:
        """The servers in the arguments."""
        if self.where == "brokers":
            return ["--bootstrap-server", f"{NOWHERE}:9092" if situation == "unknown host" else world.broker.bootstrap]
        return ["--zookeeper", f"{NOWHERE}:2181" if situation == "unknown host" else ADDRESS]


COMMANDS = {
    "consume": Command(
        "consume reader --topic {topic} --from-beginning --timeout-ms 400 --config {folder}/reader.properties",
        is_json=False,
    ),
    "perf": Command(
        "perf reader --topic {topic} --messages 1000 --threads 1 --timeout 400 --config {folder}/reader.properties",
        is_json=False,
    ),
    "groups list": Command("groups list"),
    "groups list, brokers alone": Command("groups list", "brokers"),
    "groups top": Command("groups top", is_json=False),
    "groups top, brokers alone": Command("groups top", "brokers", is_json=False),
    "groups describe": Command("groups describe {group}"),
    "groups describe --topic": Command("groups describe {group} --topic {topic}"),
    "groups describe, brokers alone": Command("groups describe {group}", "brokers", "modern"),
    "groups doctor": Command("groups doctor {group} --interval 0"),
    "groups delete": Command("groups delete {group}"),
    "groups delete, brokers alone": Command("groups delete {group}", "brokers", "modern"),
    "lag": Command("lag {group}"),
    "lag --topic": Command("lag {group} --topic {topic}"),
    "lag, brokers alone": Command("lag {group}", "brokers", "modern"),
    "log-ends": Command("log-ends --topic {topic}", is_json=False),
    "log-ends, brokers alone": Command("log-ends --topic {topic}", "brokers", is_json=False),
    "offsets export": Command("offsets export {group}", is_json=False),
    "offsets export --all": Command("offsets export --all", is_json=False),
    "offsets export --store kafka": Command("offsets export {group} --store kafka", group="modern", is_json=False),
    "offsets export --json-znodes": Command("offsets export {group} --json-znodes /kafkastorm/spout", is_json=False),
    "offsets export, brokers alone": Command("offsets export {group}", "brokers", "modern", is_json=False),
    "offsets export --all, brokers alone": Command("offsets export --all", "brokers", is_json=False),
    "offsets diff": Command("offsets diff {group}", group="moving"),
    "offsets diff FILE, brokers alone": Command("offsets diff {group} {folder}/modern.csv", "brokers", "modern"),
    "offsets import": Command("offsets import {folder}/g1.txt"),
    "offsets import, brokers alone": Command("offsets import {folder}/modern.csv {group}", "brokers", "modern"),
    "offsets set": Command("offsets set {group} --topic {topic} --to-earliest"),
    "offsets set --store kafka": Command("offsets set {group} --topic {topic} --to-earliest --store kafka"),
    "offsets set, brokers alone": Command("offsets set {group} --topic {topic} --to-earliest", "brokers", "modern"),
    "offsets delete": Command("offsets delete {group}"),
    "offsets delete, brokers alone": Command("offsets delete {group}", "brokers", "modern"),
    "migrate inspect": Command("migrate inspect {group}"),
    "migrate plan": Command("migrate plan {group} -f {folder}/{group}.new.plan --offset-convention next"),
    "migrate apply": Command("migrate apply {folder}/g1.plan"),
    "migrate apply --resume": Command("migrate apply --resume {group}", group="moving"),
    "migrate status": Command("migrate status {group}", group="moving"),
    "migrate verify": Command("migrate verify {group}", group="moving"),
    "migrate abort": Command("migrate abort {group}", group="moving"),
    "migrate rollback": Command("migrate rollback {group}", group="moving"),
    "migrate complete": Command("migrate complete {group}", group="moving"),
    "spark claims": Command("spark claims {group}"),
    "spark reconcile": Command("spark reconcile {group} --checkpoint {folder}/checkpoint"),
    "spark starting-offsets": Command(
        "spark starting-offsets {group} --topic {topic} --out-of-range keep", is_json=False
    ),
}


def cells() -> Iterator[tuple[str, str]]:
    """Each command in each situation that means anything for it."""
    for name, command in COMMANDS.items():
        for situation in SITUATIONS:
            if command.can_be_in(situation):
                yield name, situation


def kept(text: Outcome, document: Outcome | None) -> dict[str, object]:
    """What the recorded table has of a cell."""
    found: dict[str, object] = {"exit_code": text.exit_code, "errors": text.errors, "shows": bool(text.stdout.strip())}
    if document is not None:
        found["json"] = bool(document.stdout.strip())
    return found
