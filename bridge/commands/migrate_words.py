"""The commands that come next, as they can be typed: on the cluster, as whom, and as patient as this one was told.

    command_words   a command of ``migrate``, made here
    typed           a command that a sentence ends with
    with_commands   a text with commands in it: what errors say, who know the group and not how it was reached

Each command is given what it takes of that, and ``plan``, which needs a file, one.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import click

from zkconsumer.cli.offsets_common import given_words
from zkconsumer.errors import ZkConsumerError

if TYPE_CHECKING:
    from collections.abc import Iterator

CARRIED = frozenset({"zookeeper", "config_file", "bootstrap_servers", "zookeeper_auth", "timeout_s", "hooks_dir"})
"""Parameters that are given again to whatever comes next, if it has them."""

ADDRESSES = frozenset({"zookeeper", "bootstrap_servers"})

_MADE = "bridge.commands.made"
"""Where a context keeps the commands that were made with ``command_words`` or ``typed``: they are whole."""

_DIGEST = "bridge.commands.plan_digest"
"""Where a context keeps the digest of the plan that the operator gave or confirmed, for the commands that come next."""

_WORD = r"[A-Za-z0-9_./-]*[A-Za-z0-9_-]"
_VALUE = (
    rf"(?:(?:--resume|--plan-digest|-f|--plan|--strategy|--offset-convention) {_WORD}"
    r"|--(?:zookeeper|config|bootstrap-server|zookeeper-auth|timeout|hooks-dir) \S*[^\s.,;)])"
)
_COMMAND = re.compile(
    rf"zkconsumer (?P<group>migrate|groups|offsets) (?P<verb>[a-z]+)(?: (?!-){_WORD})?(?: (?:{_VALUE}|--[a-z-]*[a-z]))*"
)
"""A command as texts have it: a name or a file behind the verb, then options; no full stop behind it is part of it."""


class MigrateCommand(click.Command):
    """A command of ``migrate``: the commands that its errors name can be typed as they stand."""

    def invoke(self, ctx: click.Context) -> Any:
        """See ``click.Command``."""
        try:
            return super().invoke(ctx)
        except ZkConsumerError as error:
            error.args = (with_commands(ctx, str(error)), *error.args[1:])
            raise


def confirmed_here(context: click.Context, digest: str) -> None:
    """Commands that go on with the plan in ZooKeeper are given the digest of the plan that the operator knows."""
    context.meta[_DIGEST] = digest


def command_words(context: click.Context, *words: str) -> str:
    """A command of ``migrate`` on the same cluster, as whoever was given."""
    return typed(context, shlex.join(["zkconsumer", "migrate", *words]))


def typed(context: click.Context, command: str) -> str:
    """A command with what this one was given and that one takes, and it has not."""
    _, group, verb, *rest = shlex.split(command)
    taken = _command(context, group, verb)
    has = {word.partition("=")[0] for word in rest}
    # An address of its own is a whole one: no other is added to it.
    carried = CARRIED if has.isdisjoint(("--zookeeper", "--bootstrap-server")) else CARRIED - ADDRESSES
    lacking = [
        parameter.name
        for parameter in (() if taken is None else taken.params)
        if parameter.name in carried and has.isdisjoint(parameter.opts)
    ]
    words = [command]
    if "--resume" in rest and "--execute" in rest and "--plan-digest" not in rest and _DIGEST in context.meta:
        words += ["--plan-digest", context.meta[_DIGEST]]
    if (group, verb) == ("migrate", "plan") and rest and not {"-f", "--file"}.intersection(rest):
        words += ["-f", shlex.quote(f"{rest[0]}.plan")]
    given = shlex.join(given_words(context, [name for name in lacking if name]))
    made = " ".join([*words, *([given] if given else [])])
    context.meta.setdefault(_MADE, set()).add(made)
    return made


def with_commands(context: click.Context, text: str) -> str:
    """A text whose commands can be typed; those that are whole already stay as they are."""
    return "".join(_pieces(context, text))


def _pieces(context: click.Context, text: str) -> Iterator[str]:
    whole = sorted(context.meta.get(_MADE, ()), key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, whole))})", text) if whole else [text]
    for part in parts:
        yield part if part in whole else _COMMAND.sub(lambda found: typed(context, found[0]), part)


def _command(context: click.Context, group: str, verb: str) -> click.Command | None:
    root = context.find_root().command
    among = root.get_command(context, group) if isinstance(root, click.Group) else None
    return among.get_command(context, verb) if isinstance(among, click.Group) else None
