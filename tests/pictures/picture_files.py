"""Which drawing of a page is in which file.  Pure.

The diagrams of phases and state machines are drawn from their tables, so that they show what the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from bridge.migration.control.phases import ENDED, FORWARD, Strategy, authority_of
from tests.pictures.state_diagram import StateDiagram
from tests.pictures.svg_picture import SvgPicture
from tests.reference_pages import phases_page
from tests.reference_pages.state_machine_page import STATE_MACHINES, arrows_of, picture_name
from zkconsumer.member.state_machine import StateMachine


def _phases(strategy: Strategy) -> str:
    found = list(phases_page.arrows(strategy))
    forward = FORWARD[strategy]
    others = list(dict.fromkeys(after for _, after in found if after not in forward))
    states = [*forward, *sorted(others, key=lambda phase: phase in ENDED)]
    return StateDiagram(
        title=f"The phases of a migration with strategy {strategy}, the command that leads from each to the next, and "
        "the store with the authority",
        states=[phase.value for phase in states],
        arrows={(before.value, after.value): phases_page.label(strategy, before, after) for before, after in found},
        start="apply",
        kinds={phase.value: authority_of(phase) for phase in states},
        notes=(("zookeeper", "ZooKeeper has the authority"), ("kafka", "Kafka has the authority")),
    ).render()


def _state_machine(machine: type[StateMachine]) -> str:
    arrows = {pair: ", ".join(events) for pair, events in arrows_of(machine).items()}
    return StateDiagram(
        title=f"The states of {machine.__name__} and the events that lead from one to another",
        states=[state.value for state in type(machine.INITIAL)],
        arrows=arrows,
    ).render()


def _data_path() -> str:
    picture = SvgPicture(
        900, 402,
        "A member: znodes become events, the state machine returns commands, the command executor acts; records go "
        "from the broker through a fetcher thread and a queue to the program, and offsets go back to the store",
    )  # fmt: skip
    picture.text(16, 28, "Decisions", "head")
    picture.labelled_box((16, 44, 150, 64), ["ZooKeeper", "registrations, owners"], "zookeeper")
    picture.labelled_box((246, 44, 170, 64), ["member event loop", "one thread"], "first")
    picture.labelled_box((496, 44, 180, 64), ["member_state_machine", "pure: no IO, no clock"], "second")
    picture.labelled_box((496, 160, 180, 64), ["command_executor", "acts, decides nothing"], "first")
    picture.line([(166, 76), (244, 76)])
    picture.text(205, 68, "watches", "small middle")
    picture.line([(416, 76), (494, 76)])
    picture.text(455, 68, "events", "small middle")
    picture.line([(586, 108), (586, 158)])
    picture.text(594, 138, "commands", "small")
    picture.line([(494, 192), (91, 192), (91, 110)])
    picture.text(300, 184, "owner znodes, in one order with all other writes", "small middle")
    picture.text(16, 264, "Records", "head")
    picture.labelled_box((16, 280, 150, 64), ["broker", "leader of partitions"], "kafka")
    picture.labelled_box((246, 280, 170, 64), ["fetcher_thread", "one a broker"], "first")
    picture.labelled_box((496, 280, 180, 64), ["ChunkQueue", "bounded, not decoded"], "plain")
    picture.labelled_box((756, 280, 128, 64), ["KafkaStream", "decodes; your code"], "second")
    for start, text in ((166, "bytes"), (416, "chunks"), (676, "chunks")):
        picture.line([(start, 312), (start + 78, 312)])
        picture.text(start + 39, 304, text, "small middle")
    picture.line([(496, 208), (331, 208), (331, 278)])
    picture.text(339, 250, "fetch positions: start, drain, drop", "small")
    picture.line([(820, 344), (820, 384), (6, 384), (6, 76), (14, 76)], is_dashed=True)
    picture.text(520, 376, "offset_committer: consumed offsets, before a partition is released", "small middle")
    return picture.render()


def _rebalance() -> str:
    picture = SvgPicture(
        900, 372,
        "A rebalance over time: anna owns four partitions, ben joins; anna reads partitions 0 and 1 all the time, "
        "2 and 3 have no reader between anna's release and ben's start",
    )  # fmt: skip
    start, end = 120, 884
    joins, released, acquired, reads = 270, 470, 600, 730
    for x, number in ((joins, "1"), (released, "2"), (acquired, "3"), (reads, "4")):
        picture.line([(x, 44), (x, 268)], has_tip=False, is_dashed=True)
        picture.text(x, 36, number, "middle head")
    picture.text(start, 36, "time →", "small")
    for row in range(4):
        y = 56 + 52 * row
        picture.text(16, y + 25, f"partition {row}")
        if row < 2:
            picture.labelled_box((start, y, end - start, 38), ["anna reads"], "first")
            continue
        picture.labelled_box((start, y, joins - start, 38), ["anna reads"], "first")
        picture.labelled_box((joins, y, released - joins, 38), ["anna drains, commits"], "first")
        picture.text((released + acquired) / 2, y + 24, "no owner", "small middle")
        picture.labelled_box((acquired, y, reads - acquired, 38), ["ben positions"], "second")
        picture.labelled_box((reads, y, end - reads, 38), ["ben reads"], "second")
    for number, text in enumerate((
        "1  ben registers. Both read the group and compute the same assignment.",
        "2  anna has drained 2 and 3, commits their offsets and deletes their owner znodes, in one multi.",
        "3  ben creates the owner znodes. If one of them still exists, ben waits and tries again.",
        "4  ben has read the offsets after it created the owner znodes, and fetches from there: no record is left out.",
    )):  # fmt: skip
        picture.text(16, 296 + 20 * number, text, "small")
    return picture.render()


def _spark_membership() -> str:
    picture = SvgPicture(
        900, 330,
        "The driver of a Spark query has a membership process, which has the one session to ZooKeeper; executors read "
        "ranges of offsets from brokers; Scala members of the group see the owner znodes",
    )  # fmt: skip
    picture.text(16, 28, "Driver: both processes", "head")
    picture.labelled_box((16, 44, 220, 84), ["query", "JVM, and the Python runner", "of the source"], "first")
    picture.labelled_box(
        (366, 44, 180, 84), ["membership process", "not in the process group", "of the query"], "second"
    )
    picture.line([(236, 72), (364, 72)])
    picture.text(300, 64, "requests, a pipe", "small middle")
    picture.line([(366, 98), (238, 98)])
    picture.text(300, 116, "answers, a pipe", "small middle")
    picture.labelled_box(
        (676, 44, 208, 118),
        [
            "ZooKeeper",
            "ids/C: registration",
            "owners/T/P: what is ours",
            "offsets/T/P: offsets of the group",
            "/zkconsumer/spark/G/Q/T/P: claims",
        ],
        "zookeeper",
    )
    picture.line([(546, 86), (674, 86)])
    picture.text(610, 78, "one session", "small middle")
    picture.labelled_box((676, 236, 208, 64), ["Scala members", "of the same group"], "plain")
    picture.line([(780, 234), (780, 164)])
    picture.text(788, 204, "owner znodes", "small")
    picture.labelled_box((16, 236, 220, 64), ["executors", "no group, no ZooKeeper"], "first")
    picture.line([(126, 128), (126, 234)])
    picture.text(134, 188, "ranges of offsets", "small")
    picture.labelled_box((366, 236, 180, 64), ["Kafka", "brokers"], "kafka")
    picture.line([(366, 268), (238, 268)])
    picture.text(300, 260, "records", "small middle")
    return picture.render()


def _spark_move() -> str:
    picture = SvgPicture(
        900, 214,
        "While the group of a Spark query moves, its membership process is in the ZooKeeper group, then in neither, "
        "then in the coordinator group; a rollback leads the same way back",
    )  # fmt: skip
    picture.labelled_box((16, 40, 200, 56), ["ZooKeeper group"], "zookeeper")
    picture.labelled_box((356, 20, 188, 44), ["in neither group"], "plain")
    picture.labelled_box((356, 86, 188, 44), ["in neither group"], "plain")
    picture.labelled_box((684, 40, 200, 56), ["coordinator group"], "kafka")
    picture.line([(216, 54), (354, 42)])
    picture.text(286, 40, "1", "head middle")
    picture.line([(544, 42), (682, 54)])
    picture.text(614, 40, "switched", "small middle")
    picture.line([(684, 84), (546, 108)])
    picture.text(614, 116, "2", "head middle")
    picture.line([(356, 108), (218, 84)])
    picture.text(286, 116, "undone", "small middle")
    for number, text in enumerate((
        "1  strategy copy: fencing; strategy dual: planned",
        "2  strategy copy: a rollback waits until members of the coordinator group leave; strategy dual: returning",
    )):  # fmt: skip
        picture.text(16, 172 + 20 * number, text, "small")
    return picture.render()


def picture_files() -> Iterator[tuple[str, Callable[[], str]]]:
    """Name below ``migration_docs/pictures`` -> what draws it."""
    yield "data-path.svg", _data_path
    yield "rebalance.svg", _rebalance
    yield "spark-membership.svg", _spark_membership
    yield "spark-move.svg", _spark_move
    for strategy in FORWARD:
        yield f"phases-{strategy}.svg", partial(_phases, strategy)
    for machine in STATE_MACHINES:
        yield picture_name(machine), partial(_state_machine, machine)


PICTURES: Mapping[str, Callable[[], str]] = dict(picture_files())
