"""The page ``migration_docs/reference/coordinator-config.md``, from the tables.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.client.config import NEEDED_OF_THE_OLD, SAID_BY_THE_OLD, SETTINGS
from bridge.client.taken_settings import AS_EVERYWHERE, NOT_TAKEN, TAKEN
from zkconsumer.config import SETTINGS as OLD
from zkconsumer.config import row_of
from zkconsumer.config_page import table
from zkconsumer.settings import default_in_words

_PAGE = """\
# Settings of a coordinator's member

<!-- Generated: python tests/generate_docs.py --write -->

`CoordinatorConsumerConnector(config, group)` is told two things: `config`, the old consumer's settings, and `group`, a
mapping of Kafka's own keys for what only a coordinator's group has. How to use it:
[run a group that has moved](../how-to/run-a-migrated-group.md).

## Settings of the group

The second argument. Names, ranges and defaults are those of Kafka's clients of 3.x; numbers and booleans are taken as
such or as text. Any other key is an error.

{group}

{said_by_the_old}, so they are errors here.

## Settings of the old consumer

The first argument: a `ConsumerConfig`, as it was, or a `CoordinatorConsumerConfig`, which needs no `zookeeper.connect`.
{needed} must be given. These keys mean what they mean [for every consumer](config.md):

{as_everywhere}

These mean something of their own here:

| key | default | meaning |
|---|---|---|
{taken}

These have no effect. Whoever sets one is told so by a line `setting-ignored` in the log, but for those that say how
ZooKeeper is reached: they may stay in the file.

| key | why |
|---|---|
{not_taken}
"""


def render() -> str:
    """The whole page."""
    said = " and ".join((", ".join(f"`{key}`" for key in list(SAID_BY_THE_OLD)[:-1]), f"`{list(SAID_BY_THE_OLD)[-1]}`"))
    by = ", ".join(f"`{key}`" for key in SAID_BY_THE_OLD.values())
    return _PAGE.format(
        group=table(row_of(setting) for key, setting in SETTINGS.items() if key not in SAID_BY_THE_OLD),
        said_by_the_old=f"{said} are said by the first argument ({by})",
        needed=" and ".join(f"`{key}`" for key in sorted(NEEDED_OF_THE_OLD, reverse=True)),
        as_everywhere="\n".join(_listed(key for key in OLD if key in AS_EVERYWHERE)),
        taken="\n".join(f"| `{key}` | {default_in_words(OLD[key])} | {TAKEN[key]} |" for key in OLD if key in TAKEN),
        not_taken="\n".join(f"| `{key}` | {NOT_TAKEN[key]} |" for key in OLD if key in NOT_TAKEN),
    )


def _listed(keys: Iterable[str]) -> Iterator[str]:
    line = ""
    for key in keys:
        if line and len(line) + len(key) > 114:
            yield f"{line},"
            line = ""
        line += f"{', ' if line else ''}`{key}`"
    yield f"{line}."
