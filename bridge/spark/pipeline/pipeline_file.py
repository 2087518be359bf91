"""Reads a pipeline file: TOML text -> ``PipelineSpec``, or one error with all problems.

    text --TOML--> sections --read_section, …--> values --rule_problems--> PipelineSpec
                                            `--> problems -------------'--> PipelineFileError

Pure, except ``read_pipeline``, which reads the file and its schema files, and the file that ``consumer.config`` names,
which ``bridge.spark.options`` reads.  A specification is built only when there is no problem at all.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from bridge.spark.pipeline.hadoop_settings import SECTION as HADOOP
from bridge.spark.pipeline.hadoop_settings import read_hadoop
from bridge.spark.pipeline.pipeline_keys import DECODE_SECTIONS, SECTIONS
from bridge.spark.pipeline.pipeline_rules import rule_problems
from bridge.spark.pipeline.pipeline_spec import PipelineSpec
from bridge.spark.pipeline.section_values import SectionValues, read_section
from bridge.spark.pipeline.source_values import read_source
from bridge.spark.pipeline.spec_building import build_spec
from bridge.spark.pipeline.toml_values import problem, toml_type
from zkconsumer.base.name_suggestions import did_you_mean
from zkconsumer.errors import UsageError

ReadText: TypeAlias = Callable[[str], str]
"""Reads the text of a path; raises ``OSError`` or ``UnicodeDecodeError``."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)\Z")


class PipelineFileError(UsageError):
    """A pipeline file cannot be used; each line of the text names a key, what is wrong with it, and what to do."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_pipeline(path: str | Path) -> PipelineSpec:
    """The pipeline of a file, with the texts of its schema files.  Raises ``PipelineFileError``."""
    name = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise PipelineFileError(
            (f"{name}: does not exist; correct the path, or write it with zkconsumer pipeline init",)
        ) from None
    except OSError as error:
        raise PipelineFileError(
            (f"{name}: cannot be read ({error.strerror}); correct the path or its permissions",)
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        words = f"{name}: line {line}: is not UTF-8, which TOML must be; save the file as UTF-8"
    else:
        return parse_pipeline(text, name, folder=str(Path(path).absolute().parent), read_text=_read_schema)
    raise PipelineFileError((words,))  # not where the decoding failed: that error contains the whole file


def parse_pipeline(
    text: str, name: str, *, folder: str | None = None, read_text: ReadText | None = None
) -> PipelineSpec:
    """The pipeline in ``text``, the text of the file ``name``.  Raises ``PipelineFileError``.

    ``folder``: where relative paths begin; None: in the folder of ``name``.  ``read_text``: reads schema files; None:
    they are not read, and the specification has their paths only.
    """
    problems: list[str] = []
    tables = _tables_of(_toml(text, name), problems)
    base = posixpath.dirname(name) if folder is None else folder
    sections = {
        section: read_section(section, tables[section], base, problems)
        for section in SECTIONS
        if section not in ("source", HADOOP)
    }
    sections["source"] = read_source(tables["source"], base, problems)
    sections[HADOOP] = read_hadoop(tables[HADOOP], base, problems)
    problems += rule_problems(sections)
    schemas = _schemas(sections, read_text, problems)
    if problems:
        order = {f"[{section}]": number for number, section in enumerate(SECTIONS)}
        problems.sort(key=lambda line: order.get(line[: line.find("]") + 1], -1))
        raise PipelineFileError(tuple(_printable(f"{name}: {line}") for line in dict.fromkeys(problems)))
    return build_spec(name, sections, schemas)


def _printable(line: str) -> str:
    """One line: a value or a key of the file may have line ends, and characters that a terminal obeys."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(line.split()))


# --- TOML ---------------------------------------------------------------------------------------------------------


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        words = "a value is nested too deeply; correct it"
    except ValueError as error:
        words = _toml_words(text, error)
    raise PipelineFileError((f"{name}: {words}",))


def _toml_words(text: str, error: ValueError) -> str:
    """One line with the place; the text of the error has no values but the digits of its place."""
    if not isinstance(error, tomllib.TOMLDecodeError):
        return "a number has too many digits; correct it"
    message = str(error)
    place = _PLACE.search(message)
    if place is None:
        return f"is not valid TOML: {message}; correct it"
    lines = text.split("\n")
    line, column = (int(place[1]), int(place[2])) if place[1] else (len(lines), len(lines[-1]) + 1)
    return (
        f"line {line}, column {column}: is not valid TOML: {message[: place.start()]}; correct it (a text needs quotes)"
    )


def _tables_of(document: Mapping[str, Any], problems: list[str]) -> dict[str, dict[str, Any]]:
    """The table of each section; one that the file does not have is empty."""
    tables: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in document.items():
        if name not in SECTIONS:
            problems.append(_unknown_section(name, value))
        elif not isinstance(value, dict):
            is_array = isinstance(value, list) and all(isinstance(each, dict) for each in value)
            what = (
                "is a section that can be there only once" if is_array else f"is {toml_type(value)}, and not a section"
            )
            problems.append(f"[{name}]: {what}; write [{name}] in a line, and its keys below")
        else:
            tables[name] = dict(value)
    decode = tables["decode"]
    for section in DECODE_SECTIONS:
        part = section.removeprefix("decode.")
        if part in decode and section != "decode":
            value = decode.pop(part)
            if isinstance(value, dict):
                tables[section] = value
            else:
                problems.append(
                    problem("decode", part, f"is {toml_type(value)}, and not a section; write [{section}] in a line")
                )
    return tables


def _unknown_section(name: str, value: Any) -> str:
    if isinstance(value, dict):
        near = did_you_mean(name, SECTIONS)
        return f"[{name}]: is not known{near}; the sections are {', '.join(f'[{each}]' for each in SECTIONS)}"
    return f"{name}: is before the first section; write it below a section, for example [pipeline]"


# --- schema files -------------------------------------------------------------------------------------------------


def _read_schema(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8-sig")


def _schemas(sections: Mapping[str, SectionValues], read_text: ReadText | None, problems: list[str]) -> dict[str, str]:
    """Section -> the text of its schema file."""
    texts: dict[str, str] = {}
    for section in DECODE_SECTIONS:
        path = sections[section].get("schema-file")
        if path is None or read_text is None:
            continue
        try:
            texts[section] = read_text(path)
        except OSError as error:
            problems.append(
                problem(section, "schema-file", f"{path} cannot be read ({error.strerror}); correct the path")
            )
        except UnicodeDecodeError:
            problems.append(problem(section, "schema-file", f"{path} is not UTF-8; save it as UTF-8"))
        else:
            if not texts[section].strip():
                problems.append(problem(section, "schema-file", f"{path} is empty; write the schema into it"))
    return texts
