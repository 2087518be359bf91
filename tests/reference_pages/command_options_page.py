"""The page ``migration_docs/reference/command-options.md``: what ``--help`` of each command shows.  Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import click

from zkconsumer.cli import main

_PAGE = """\
# Options of the commands

<!-- Generated: python tests/generate_docs.py --write -->

Every command of `zkconsumer` with its arguments, options and exit codes: the text of its `--help`.
[Commands](commands.md) has the command for a task, and
[how commands end when something is missing](command-outcomes.md) what they print then. Every command also has `--help`.

{commands}
"""
_PROGRAM = "zkconsumer"
LINE_CHARS_MAX = 130
_UNWRAPPED = "\b"
"""Before a paragraph whose lines click does not join."""


def render() -> str:
    """The whole page."""
    sections = ["\n".join(_section(context)) for context in described_commands()]
    return _PAGE.format(commands="\n\n".join(sections))


def described_commands() -> Iterator[click.Context]:
    """Yield the context of each command, in the order of ``--help``: a group before its commands."""
    yield from _walk(click.Context(main, info_name=_PROGRAM))


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, "it is in the list"
            if not child.hidden:
                yield from _walk(click.Context(child, info_name=name, parent=context))


def _section(context: click.Context) -> Iterator[str]:
    path, command = context.command_path, context.command
    yield f"## {path}\n"
    yield f"```text\n{path} {' '.join(command.collect_usage_pieces(context))}\n```"
    for paragraph in (command.help or "").partition("\f")[0].split("\n\n"):
        yield ""
        lines = paragraph.strip("\n").split("\n")
        if lines[0].strip() == _UNWRAPPED:
            # Python 3.13 removes the indentation of a docstring; before that, click leaves it here.
            yield "\n".join(["```text", textwrap.dedent("\n".join(lines[1:])).rstrip(), "```"])
        else:
            yield _wrapped(_prose(" ".join(lines)))
    options = [record for param in command.params if _is_shown(param) and (record := param.get_help_record(context))]
    if options:
        yield "\n| option | meaning |\n|---|---|"
        yield from (f"| {_code(names)} | {_prose(meaning)} |" for names, meaning in options)
    if isinstance(command, click.Group):
        yield "\n| command | what it does |\n|---|---|"
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                anchor = f"{path} {name}".replace(" ", "-")
                yield f"| [`{path} {name}`](#{anchor}) | {_prose(child.get_short_help_str(200))} |"


def _is_shown(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not param.hidden and "--help" not in param.opts


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`{escaped}`"


def _prose(text: str) -> str:
    """Text for Markdown: options and variables as code, and no character that Markdown reads as its own."""
    escaped = re.sub(r"([\\`*_<>|\[\]])", r"\\\1", " ".join(text.split()))
    return re.sub(r"(?<![\w-])(--[a-z][\w-]*(?:\.[\w-]+)*|\$[A-Z][A-Z\\_]*)", _as_code, escaped)


def _wrapped(text: str) -> str:
    """Lines of a paragraph; none begins like a list or a heading."""
    lines = textwrap.wrap(text, LINE_CHARS_MAX, break_long_words=False, break_on_hyphens=False)
    return "\n".join(re.sub(r"^(\d*)([-+#.)])(?=\s)", r"\1\\\2", line) for line in lines)


def _as_code(found: re.Match[str]) -> str:
    plain = found[1].replace("\\", "")
    return f"`{plain}`"
