"""The commands that texts and ``next_steps`` name, made so that they can be pasted as they stand.

A text knows which command comes next and for which group, and not how this command reached the cluster.  Whatever
prints it completes the command: with the addresses as they were typed here, or with none where the environment has
them, and with the other options of ``CARRIED_PARAMETERS`` that were typed here and that the named command takes.

    hint          a command, made from its words
    completed     a text whose commands are completed; one that is complete already stays as it is
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

ADDRESS_PARAMETERS = frozenset({"zookeeper", "bootstrap_servers"})
CARRIED_PARAMETERS = ADDRESS_PARAMETERS | {"config_file", "zookeeper_auth", "timeout_s", "hooks_dir"}
"""Parameters that are given again to the command that comes next, if it has them."""

TEXT_ARGUMENTS_MAX = 1_000
"""Arguments of a command that takes any number of them."""

# A word as a shell reads it.  A full stop, comma, colon or semicolon behind it belongs to the sentence.
_ATOM = r"'[^']*'|\"'\"|[A-Za-z0-9_./@%+:,=\[\]-]"
_WORD = re.compile(rf"(?:{_ATOM})*(?:'[^']*'|\"'\"|[A-Za-z0-9_/%+=\]-])")
_START = re.compile(rf"(?<![\w./'`\"-]){PROGRAM} (?=[a-z])")
"""In quotes it is the name of a command, and none to be pasted."""


@runtime_checkable
class HintCompleter(Protocol):
    """A click command that needs more than the options of ``CARRIED_PARAMETERS`` wherever it is named."""

    def complete_hint(self, context: click.Context, words: list[str], carried: set[str]) -> list[str]:
        """The words to add.  ``words``: those behind its name; parameters may be taken out of ``carried``."""


def command_text(context: click.Context, *words: str) -> str:
    """A command from its words, without the program."""
    return complete_commands(shlex.join([PROGRAM, *words]), context)


def complete_commands(text: str, context: click.Context | None = None) -> str:
    """A text whose commands can be pasted as they stand; ``context`` None: of the command that runs now."""
    context = context or click.get_current_context(silent=True)
    return text if context is None or f"{PROGRAM} " not in text else "".join(_pieces(context, text))


def complete_commands_in_json(value: object) -> object:
    """A JSON document in which every text is ``completed``."""
    if isinstance(value, str):
        return complete_commands(value)
    if isinstance(value, Mapping):
        return {key: complete_commands_in_json(one) for key, one in value.items()}
    return [complete_commands_in_json(one) for one in value] if isinstance(value, list | tuple) else value


def commands_in(context: click.Context, text: str) -> list[str]:
    """The commands that a text names, without comments behind them."""
    return [text[start:end] for start, end, _, _ in _found(context, text)]


def rerun_with_execute(context: click.Context) -> str:
    """The command that was given, as it would be typed, with ``--execute``."""
    return shlex.join([*given_arguments(context), "--execute"])


def given_arguments(
    context: click.Context, names: Collection[str] | None = None, without: Collection[str] = ()
) -> list[str]:
    """The command that was given, word by word, without ``--execute`` and the options ``without`` (as typed).

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
    """Its first long name: ``--config`` and not ``--consumer.config``."""
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
    """Each command of the text: where it begins and ends, what it calls, and the words behind its name."""
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
    """Where the name of the command ends, and the command; None where no command is named."""
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
    """Where arguments and options end, and what they are: those that the command takes."""
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
    if not has.isdisjoint(("--zookeeper", "--bootstrap-server")):
        carried -= ADDRESS_PARAMETERS  # addresses of its own are never mixed with others
    more = command.complete_hint(context, words, carried) if isinstance(command, HintCompleter) else []
    names = [one.name for one in command.params if one.name in carried and has.isdisjoint(one.opts)]
    return [*more, *given_arguments(context, [name for name in names if name])]
