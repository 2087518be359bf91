"""``zkconsumer``: finds the command, runs it, and prints errors.

No large module is imported before a command is chosen.  Other distributions add commands with entry points of the group
``zkconsumer.commands``: the name of the command, and ``module:attribute`` of a click command.

Exit codes: 0 done, 1 something is wrong (commands add codes of their own), 2 usage error, 4 a precondition does not
hold and nothing was changed, 130 interrupted, 141 standard output was closed.  An error class may set its own.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from zkconsumer.cli.console import print_error
from zkconsumer.cli.first_commands import print_first_commands
from zkconsumer.cli.json_errors import print_json_error
from zkconsumer.cli.lazy_commands import SHORT_HELP_CHARS_MAX, LazyGroup, load_command
from zkconsumer.cli.plugin_commands import load_plugin, plugins
from zkconsumer.cli.terminal import is_terminal
from zkconsumer.errors import PreconditionFailed, UsageError, ZkConsumerError
from zkconsumer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_ERROR = ZkConsumerError.exit_code
EXIT_PRECONDITION = PreconditionFailed.exit_code
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

OUTPUT_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a disk that a write to standard output can raise."""


class CommandEntry(NamedTuple):
    """Where a command is, and its text in the list of commands."""

    target: str
    help: str


COMMANDS = {
    "consume": CommandEntry(
        "zkconsumer.cli.consume:consume", "Read topics as a member of a group, and print the messages."
    ),
    "groups": CommandEntry("zkconsumer.cli.groups:groups", "List, describe, examine and delete consumer groups."),
    "lag": CommandEntry("zkconsumer.cli.lag:lag", "Show the lag of a group, once or repeatedly."),
    "log-ends": CommandEntry(
        "zkconsumer.cli.log_ends:log_ends", "Show where a topic's logs end or begin, like GetOffsetShell."
    ),
    "assign": CommandEntry("zkconsumer.cli.assign:assign", "Compute which member would own which partition."),
    "check": CommandEntry("zkconsumer.cli.check:check", "Check the history of a group under test."),
    "perf": CommandEntry("zkconsumer.cli.perf:perf", "Measure how fast a member of a group reads a topic."),
    "health": CommandEntry("zkconsumer.cli.health:health", "Check whether a running member works, for supervisors."),
    "sandbox": CommandEntry(
        "zkconsumer.cli.sandbox:sandbox", "Run a real ZooKeeper with real brokers on this machine."
    ),
    "contexts": CommandEntry("zkconsumer.cli.contexts_command:contexts", "List the clusters that --context can name."),
    "completion": CommandEntry(
        "zkconsumer.cli.completion:completion", "Print the completion script of bash, zsh or fish."
    ),
    "offsets": CommandEntry("zkconsumer.cli.offsets:offsets", "Save, compare, move and set the offsets of groups."),
}


class RootCommand(LazyGroup):
    """The commands of ``COMMANDS``, loaded when they are called, and those of plug-ins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(name for name in plugins() if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return load_command(COMMANDS[cmd_name].target)
        plug_in = plugins().get(cmd_name)
        return None if plug_in is None else load_plugin(plug_in)

    def described(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        for name, command in COMMANDS.items():
            yield name, command.help
        for name, plug_in in sorted(plugins().items()):
            if name in COMMANDS:
                continue
            try:
                yield name, load_plugin(plug_in).get_short_help_str(SHORT_HELP_CHARS_MAX)
            except UsageError as error:
                yield name, f"({error})"

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """See ``click.Command``; errors in the options before a command are printed like other errors."""
        try:
            return super().make_context(*args, **more)
        except click.ClickException as error:
            _exit_usage_error(error)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become a message and an exit code, and a JSON document if the command prints JSON."""
        try:
            if not is_terminal(sys.stderr):
                return self._invoke(ctx)
            from zkconsumer.cli.progress_display import terminal_progress

            with terminal_progress():
                return self._invoke(ctx)
        except click.exceptions.Exit as end:
            try:
                print_json_error(ctx, end.exit_code)
            except OSError:  # the error is already on standard error
                _discard_output()
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except ZkConsumerError as error:
            _exit_error(ctx, error)
        except click.ClickException as error:
            _exit_usage_error(error)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(EXIT_BROKEN_PIPE)
        except OSError as error:
            if error.errno not in OUTPUT_ERRNOS:
                raise
            _discard_output()
            print_error(f"the output cannot be written: {error.strerror}")
            ctx.exit(EXIT_ERROR)
        return result


def _exit_error(ctx: click.Context, error: ZkConsumerError) -> NoReturn:
    """Print the error's own text, or else the sentence of its class."""
    words = str(error) or " ".join((type(error).__doc__ or type(error).__name__).split())
    print_error(words)
    ctx.exit(error.exit_code)


def _exit_usage_error(error: click.ClickException) -> NoReturn:
    """Print click's usage error, with our prefix."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        click.echo(f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n", err=True)
    print_error(error.format_message())
    raise click.exceptions.Exit(error.exit_code)


def _discard_output() -> None:
    """Discard buffered output, or Python would print an error about it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:  # Not a real file: a test, or an embedding program.
        return


@click.command(
    cls=RootCommand,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 something is wrong, 2 usage error; a command may have more.",
)
@click.option("--version", "is_version", is_flag=True, help="Show the version and exit.")
@click.option(
    "-v", "is_verbose", is_flag=True, help="With --version: also show which compiled modules and codecs are in use."
)
@click.pass_context
def main(context: click.Context, is_version: bool, is_verbose: bool) -> None:
    """Kafka's ZooKeeper-based consumer; its members share a group with Scala consumers."""
    if is_version:
        click.echo(f"zkconsumer {__version__}")
        if is_verbose:
            from zkconsumer.cli.installation import describe

            for line in describe():
                click.echo(line)
        context.exit()
    if is_verbose:
        raise click.UsageError("-v needs --version: zkconsumer --version -v", context)
    if context.invoked_subcommand is None:
        print_first_commands()
        context.exit(UsageError.exit_code)
