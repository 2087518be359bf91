"""Options that many commands have: the addresses of the cluster, the group, and the output format.

An environment variable gives the address only if no option and no file does: an address that is typed for one command
is never combined with one of the environment.  For the same reason ``--context`` and an address exclude each other.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from zkconsumer.cli.command_hints import complete_commands
from zkconsumer.cli.contexts import CONTEXT_VARIABLE, contexts_path, find_context, read_contexts
from zkconsumer.cli.json_errors import expect_json
from zkconsumer.errors import UsageError, ZkConsumerError
from zkconsumer.properties import decode_properties, parse_properties

ZOOKEEPER_VARIABLE = "ZKCONSUMER_ZOOKEEPER"
BOOTSTRAP_VARIABLE = "ZKCONSUMER_BOOTSTRAP_SERVERS"
ADDRESS_KEYS = ("zookeeper.connect", "bootstrap.servers")

OutputFormat: TypeAlias = Literal["table", "json"]
"""What a command receives; ``-o wide`` is a table."""

WIDE = "wide"
_WIDE_IS_WANTED = "zkconsumer.cli.wide_is_wanted"

F = TypeVar("F", bound=Callable[..., Any])

SECONDS_MAX = 1_000_000
"""The largest time that an option can give: eleven days."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The values of ``cluster_options``; each may be missing."""

    zookeeper: str | None = None
    config_file: Path | None = None
    bootstrap_servers: str | None = None


def cluster_options(command: F) -> F:
    """``--zookeeper``, ``--bootstrap-server`` and ``--config``, or ``--context``, or the environment variables.

    The command receives them as ``cluster``, a ``ClusterOptions``.
    """
    options = (
        click.option(
            "--bootstrap-server", "bootstrap_servers", metavar="HOST:PORT[,…]",
            help="bootstrap.servers: brokers to ask, instead of those that are registered in ZooKeeper. "
                 f"If no address is given: ${BOOTSTRAP_VARIABLE}.",
        ),
        click.option(
            "--zookeeper", metavar="HOST:PORT[,…][/CHROOT]",
            help=f"zookeeper.connect; overrides the file. If no address is given: ${ZOOKEEPER_VARIABLE}.",
        ),
        click.option(
            "--config", "--consumer.config", "config_file", type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE", help="A consumer's .properties file: addresses, credentials and keys.",
        ),
        click.option(
            "--context", "context_name", metavar="NAME", shell_complete=_matching_contexts,
            help="A cluster of your config.toml instead of addresses (zkconsumer contexts lists them). "
                 f"If no address is given: ${CONTEXT_VARIABLE}.",
        ),
    )  # fmt: skip

    @functools.wraps(command)
    def with_addresses(**given: Any) -> Any:
        try:
            cluster = _addresses(given)
            return command(cluster=cluster, **given)
        except ZkConsumerError as error:
            # Only here is the command line of this command still available.
            error.args = tuple(complete_commands(each) if isinstance(each, str) else each for each in error.args)
            raise

    wrapped: Any = with_addresses
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def _addresses(given: dict[str, Any]) -> ClusterOptions:
    """Take the addresses out of ``given``; without any address there and in the file, those of the context or of the
    environment.  Raises ``UsageError`` if there are two sources of addresses and neither has priority.
    """
    addresses = ClusterOptions(given.pop("zookeeper"), given.pop("config_file"), given.pop("bootstrap_servers"))
    name = given.pop("context_name")
    if _has_address(addresses, given.get("settings", ())):
        if name is not None:
            raise UsageError(f"--context {name} and an address are given; give one of them")
        return addresses
    if name is not None:
        return _of_context(name, addresses)
    name = from_environment(CONTEXT_VARIABLE)
    zookeeper, servers = from_environment(ZOOKEEPER_VARIABLE), from_environment(BOOTSTRAP_VARIABLE)
    if name is None:
        return replace(addresses, zookeeper=zookeeper, bootstrap_servers=servers)
    if zookeeper is not None or servers is not None:
        other = ZOOKEEPER_VARIABLE if zookeeper is not None else BOOTSTRAP_VARIABLE
        raise UsageError(f"the environment has {CONTEXT_VARIABLE} and {other}; unset one of them, or give --context")
    return _of_context(name, addresses)


def _matching_contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the names for the shell; none if the file is not valid: the shell cannot show the error."""
    try:
        return [name for name in read_contexts(contexts_path()) if name.startswith(incomplete)]
    except UsageError:
        return []


def _has_address(addresses: ClusterOptions, settings: Sequence[str]) -> bool:
    """Whether an option, a setting or the file names a server."""
    if addresses.zookeeper is not None or addresses.bootstrap_servers is not None:
        return True
    keys = {text.partition("=")[0].strip() for text in settings}
    return not (keys | read_settings_file(addresses.config_file).keys()).isdisjoint(ADDRESS_KEYS)


def _of_context(name: str, given: ClusterOptions) -> ClusterOptions:
    """Return the addresses of the context, and its file unless another one is given."""
    found = find_context(name, contexts_path())
    return ClusterOptions(found.zookeeper, given.config_file or found.config_file, found.bootstrap_servers)


def from_environment(variable: str) -> str | None:
    """Return its value; an empty value counts as absent, as for click's own variables."""
    return os.environ.get(variable) or None


def read_settings_file(config_file: Path | None) -> Mapping[str, str]:
    """Return the settings of the file; none if it cannot be read: the command reads it later and reports the error."""
    try:
        return parse_properties(decode_properties(config_file.read_bytes())) if config_file is not None else {}
    except (OSError, ValueError):
        return {}


def is_on_command_line(context: click.Context, parameter: str) -> bool:
    """Whether the parameter is on the command line, not from the environment or a default."""
    return context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


# --- the group --------------------------------------------------------------------------------------------------

_OPTION = "group_option"


def group_argument(*, required: bool = True) -> Callable[[F], F]:
    """The group, as an argument or as ``--group``; the command receives it as ``group``."""

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_group(**given: Any) -> Any:
            context = click.get_current_context()
            argument, option = given.pop("group"), given.pop(_OPTION)
            if argument is not None and option is not None and argument != option:
                raise click.UsageError(f"two groups are given, {argument!r} and --group {option!r}; name one", context)
            group = option if argument is None else argument
            if group is None and required:
                raise click.UsageError("Missing argument 'GROUP', or --group.", context)
            context.params["group"] = group
            return command(group=group, **given)

        wrapped: Any = with_group
        wrapped = click.option(
            "--group", _OPTION, metavar="GROUP", help="The group, if it is not given as an argument."
        )(wrapped)
        wrapped = click.argument("group", required=False, metavar="GROUP" if required else "[GROUP]")(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return decorate


def group_arguments(command: F) -> F:
    """Any number of groups, as arguments or as ``--group``; the command receives them as ``groups``, in that order."""

    @functools.wraps(command)
    def with_groups(**given: Any) -> Any:
        more = given.pop("group_options")
        return command(groups=(*given.pop("groups"), *more), **given)

    wrapped: Any = with_groups
    wrapped = click.option(
        "--group", "group_options", multiple=True, metavar="GROUP", help="A group; may be repeated."
    )(wrapped)
    return click.argument("groups", nargs=-1, metavar="[GROUP]...")(wrapped)  # type: ignore[no-any-return]


# --- the output -------------------------------------------------------------------------------------------------


def _output(context: click.Context, _: click.Parameter, value: str) -> str:
    if value == "json":
        expect_json(context)
    if value != WIDE:
        return value
    context.meta[_WIDE_IS_WANTED] = True
    return "table"


def is_wide_wanted() -> bool:
    """Whether the command was called with ``-o wide``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE_IS_WANTED))


def output_option(command: F) -> F:
    """``-o table|wide|json``; the command receives ``table`` or ``json``."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", WIDE, "json"]), default="table", show_default=True,
        help="A table that fits the terminal, the whole table (as in a pipe), or JSON for programs.", callback=_output,
    )(command)  # fmt: skip


def report_options(command: F) -> F:
    """``-o`` and the options of the cluster; the command also receives the context, as its first argument."""
    with_context: Any = click.pass_context(command)
    return output_option(cluster_options(with_context))  # type: ignore[no-any-return]


class SecondsRange(click.FloatRange):
    """A number of seconds.  click's own range accepts ``nan``."""

    def __init__(self, min_s: float, max_s: float = SECONDS_MAX) -> None:
        super().__init__(min=min_s, max=max_s)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See ``click.ParamType``."""
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def choice_option(
    name: str, choices: Sequence[str], default: str, help_: str, *, parameter: str | None = None
) -> Callable[[F], F]:
    """An option with one of these values; the help shows the default.

    ``parameter``: the name of the command's parameter, if it is not the option's.
    """
    names = (name,) if parameter is None else (name, parameter)
    return click.option(*names, type=click.Choice(choices), default=default, show_default=True, help=help_)
