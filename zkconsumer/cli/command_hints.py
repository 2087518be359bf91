"""Completes the commands that texts and ``next_steps`` name, so that they can be pasted.

A text names the next command and its group, but not the options with which this command reached the cluster.  The
printing function adds them: the addresses as they were typed here (none if they come from the environment), and the
other options of ``CARRIED_PARAMETERS`` that were typed here and that the named command accepts.

    command_text         a command, made from its words
    complete_commands    a text whose commands are completed; a complete command stays unchanged
    rerun_with_execute   the command that was given, with ``--execute``
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, runtime_checkable

import click
from click.core import ParameterSource

PROGRAM = "zkconsumer"

ADDRESS_PARAMETERS = frozenset({"zookeeper", "bootstrap_servers", "context_name"})
CARRIED_PARAMETERS = ADDRESS_PARAMETERS | {"config_file", "zookeeper_auth", "timeout_s", "hooks_dir"}
"""Parameters that are repeated in the next command, if it has them."""

TEXT_ARGUMENTS_MAX = 1_000
"""Arguments of a command that accepts any number of them."""

# A word as a shell reads it.  A full stop, comma, colon or semicolon after it belongs to the sentence.
_ATOM = r"'[^']*'|\"'\"|[A-Za-z0-9_./@%+:,=\[\]-]"
_WORD = re.compile(rf"(?:{_ATOM})*(?:'[^']*'|\"'\"|[A-Za-z0-9_/%+=\]-])")
_START = re.compile(rf"(?<![\w./'`\"-]){PROGRAM} (?=[a-z])")
"""A quoted command is only a name; it is not completed."""


@runtime_checkable
class HintCompleter(Protocol):
    """A click command that needs more than the options of ``CARRIED_PARAMETERS`` wherever it is named."""

    def complete_hint(self, context: click.Context, words: list[str], carried: set[str]) -> list[str]:
        """Return the words to add.  ``words``: those after its name; it may remove parameters from ``carried``."""


def command_text(context: click.Context, *words: str) -> str:
    """A command from its words, without the program."""
    return complete_commands(shlex.join([PROGRAM, *words]), context)


def complete_commands(text: str, context: click.Context | None = None) -> str:
    """Return the text with complete commands.  ``context`` None: the context of the running command."""
    context = context or click.get_current_context(silent=True)
    return text if context is None or f"{PROGRAM} " not in text else "".join(_pieces(context, text))


def complete_commands_in_json(value: object, context: click.Context | None = None) -> object:
    """Return a JSON document in which the commands of every text are completed; ``context`` as in
    ``complete_commands``."""
    if isinstance(value, str):
        return complete_commands(value, context)
    if isinstance(value, Mapping):
        return {key: complete_commands_in_json(one, context) for key, one in value.items()}
    return [complete_commands_in_json(one, context) for one in value] if isinstance(value, list | tuple) else value


def commands_in(context: click.Context, text: str) -> list[str]:
    """Return the commands that a text names, without the comments after them."""
    return [text[start:end] for start, end, _, _ in _found(context, text)]


def rerun_with_execute(context: click.Context) -> str:
    """Return the command as it was typed, with ``--execute`` added."""
    return shlex.join([*given_arguments(context), "--execute"])


def given_arguments(
    context: click.Context, names: Collection[str] | None = None, without: Collection[str] = ()
) -> list[str]:
    """Return the words of the command that was given, without ``--execute`` and the options ``without`` (as typed).

    ``names``: only these options, by the names of their parameters, and not the command.
    """
    given = [
        (parameter, context.params[parameter.name])
        for parameter in context.command.params
        if parameter.name in context.params
        and parameter.name != "do_it"
        and (names is None or parameter.name in names)
        and not set(without).intersection(parameter.opts)
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    words = [PROGRAM, *context.command_path.split()[1:]] if names is None else []
    for parameter, value in sorted(given, key=lambda each: isinstance(each[0], click.Option)):
        if isinstance(parameter, click.Argument):
            words += [str(each) for each in (value if parameter.nargs == -1 else [value])]
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[-1])
        else:
            values = value if parameter.multiple else [value]
            words += [word for each in values for word in (_name_of(parameter), str(each))]
    return words


def _name_of(option: click.Parameter) -> str:
    """Return its first long name: ``--config`` and not ``--consumer.config``."""
    return next((name for name in option.opts if name.startswith("--")), option.opts[0])


# --- commands in a text -----------------------------------------------------------------------------------------


def _pieces(context: click.Context, text: str) -> Iterator[str]:
    at = 0
    for _, end, command, words in _found(context, text):
        more = _missing_options(context, command, words)
        yield text[at:end]
        if more:
            yield " " + shlex.join(more)
        at = end
    yield text[at:]


def _found(context: click.Context, text: str) -> Iterator[tuple[int, int, click.Command, list[str]]]:
    """Yield each command of the text: its start and end, the click command, and the words after its name."""
    at = 0
    while (start := _START.search(text, at)) is not None:
        at = start.end()
        called = _called(context, text, start.end())
        if called is not None:
            end, command = called
            end, words = _arguments(command, text, end)
            yield start.start(), end, command, words
            at = end


def _called(context: click.Context, text: str, at: int) -> tuple[int, click.Command] | None:
    """Return the end of the command's name, and the command; None if the text names no command here."""
    root = context.find_root()
    command: click.Command | None = root.command
    while isinstance(command, click.Group):
        word = _WORD.match(text, at)
        command = None if word is None else command.get_command(root, word[0])
        if word is None or command is None:
            return None
        at = word.end() + (1 if isinstance(command, click.Group) else 0)
    return None if command is None else (at, command)


def _arguments(command: click.Command, text: str, at: int) -> tuple[int, list[str]]:
    """Return the end of the arguments and options, and those that the command accepts."""
    options = {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}
    arguments = [one.nargs for one in command.params if isinstance(one, click.Argument)]
    arguments_max = TEXT_ARGUMENTS_MAX if -1 in arguments else len(arguments)
    arguments_found = 0
    words: list[str] = []
    while text[at : at + 1] == " " and (word := _WORD.match(text, at + 1)) is not None:
        option = options.get(word[0].partition("=")[0])
        if word[0].startswith("-"):
            if option is None:
                break
            words.append(word[0])
            at = word.end()
            value = None if option.is_flag or "=" in word[0] else _WORD.match(text, at + 1)
            if value is not None:
                words.append(value[0])
                at = value.end()
        elif arguments_found == len(words) < arguments_max:
            words.append(word[0])
            at = word.end()
            arguments_found += 1
        else:
            break
    return at, [unquoted for word in words for unquoted in shlex.split(word)]


def _missing_options(context: click.Context, command: click.Command, words: list[str]) -> list[str]:
    has = {word.partition("=")[0] for word in words}
    carried = set(CARRIED_PARAMETERS)
    if not has.isdisjoint(("--zookeeper", "--bootstrap-server", "--context")):
        carried -= ADDRESS_PARAMETERS  # the command names its own addresses: never mix them with ours
    more = command.complete_hint(context, words, carried) if isinstance(command, HintCompleter) else []
    names = [one.name for one in command.params if one.name in carried and has.isdisjoint(one.opts)]
    return [*more, *given_arguments(context, [name for name in names if name])]
