"""The file that ``zkconsumer pipeline init`` writes: two edits make it valid, and each of its comments is true."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from bridge.spark.pipeline.pipeline_file import PipelineFileError, parse_pipeline
from bridge.spark.pipeline.pipeline_key import PipelineKey, toml_text
from bridge.spark.pipeline.pipeline_keys import PIPELINE_KEYS, SECTIONS, keys_of
from bridge.spark.pipeline.pipeline_spec import ParquetTarget, PipelineSpec
from bridge.spark.pipeline.pipeline_template import EDITED, pipeline_template
from bridge.spark.pipeline.target_keys import CONNECTIONS

TEXT = pipeline_template("clicks")
KEY_LINE = re.compile(r"(#?)([\w.-]+) = (.*?)(?:  # EDIT)?")
LOGIN = (
    "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.username", "kafka.sasl.password",
)  # fmt: skip
"""Keys whose examples are valid only together; ``kafka.sasl.mechanism`` says with which protocol."""


def edited(text: str = TEXT) -> str:
    """The template after its two edits."""
    edits = {"zookeeper.connect": "zk:2181", "subscribe": "clicks"}
    for key in EDITED:
        assert text.count(f'\n{key} = ""  # EDIT\n') == 1
        text = text.replace(f'\n{key} = ""  # EDIT\n', f'\n{key} = "{edits[key]}"\n')
    return text


def key_lines() -> list[tuple[str, str, str, bool]]:
    """Section, key, value as TOML, and whether it is a comment."""
    found, section = [], ""
    for line in TEXT.splitlines():
        if match := re.fullmatch(r"\[(.+)\]", line):
            section = match[1]
        elif match := KEY_LINE.fullmatch(line):
            found.append((section, match[2], match[3], match[1] == "#"))
    return found


LINES = key_lines()
COMMENTED = [(section, name, value) for section, name, value, is_comment in LINES if is_comment]


def test_two_edits_make_a_pipeline() -> None:
    assert len([line for line in TEXT.splitlines() if line.endswith("# EDIT")]) == len(EDITED) == 2
    spec = parse_pipeline(edited(), "/p/clicks.toml")
    assert isinstance(spec, PipelineSpec)
    assert spec.name == "clicks"
    assert spec.sink == ParquetTarget("/p/clicks-data/rows", "day", "snappy")
    assert spec.dead_letters == ParquetTarget("/p/clicks-data/dead-letters", "none", "snappy")
    assert spec.source.options == {
        "zookeeper.connect": "zk:2181", "group.id": "clicks", "subscribe": "clicks", "auto.offset.reset": "smallest",
        "group.offsets.commit": "claim", "includeHeaders": "true",
    }  # fmt: skip


def test_the_template_names_the_two_lines_until_they_are_edited() -> None:
    with pytest.raises(PipelineFileError) as caught:
        parse_pipeline(TEXT, "clicks.toml")
    assert sorted(line.split(": ")[1] for line in caught.value.problems) == [
        "[source] subscribe", "[source] zookeeper.connect",
    ]  # fmt: skip


def test_the_template_has_every_key_but_those_that_another_section_shows() -> None:
    for section in SECTIONS:
        shown = [name for found, name, _, _ in LINES if found == section]
        assert shown == [key.name for key in keys_of(section) if key.is_in_template]
    for key in PIPELINE_KEYS:
        if key.is_in_template or key.section == "source":
            continue
        other = {"decode.key": "decode", "decode.headers": "decode", "dead-letters": "sink", "sink": "source"}[
            key.section
        ]
        assert key.name in {row.name for row in keys_of(other)}, "the comment of the section names the other one"
        assert f"[{other}]" in SECTIONS[key.section]


def test_the_template_is_of_plain_lines_that_a_terminal_shows() -> None:
    assert max(map(len, TEXT.splitlines())) <= 120
    assert "`" not in TEXT
    assert all(line == "" or line[0] in "#[" or KEY_LINE.fullmatch(line) for line in TEXT.splitlines())


def test_links_of_the_meanings_are_their_text_and_brackets_of_ranges_stay() -> None:
    words = " ".join(line.removeprefix("#").strip() for line in TEXT.splitlines())
    assert "the ranges [first, end), without end, like Spark's ranges" in words
    assert "see Offsets that cannot be read." in words


@pytest.mark.parametrize("name", ["clicks", "a.b_c-1"])
def test_the_name_of_the_pipeline_is_in_its_group_and_folders(name: str) -> None:
    spec = parse_pipeline(edited(pipeline_template(name)), "x.toml")
    assert (spec.name, spec.source.options["group.id"]) == (name, name)
    assert spec.checkpoint.path == f"{name}-data/checkpoint"


# --- each commented key -------------------------------------------------------------------------------------------


def nested(document: dict[str, Any], section: str) -> dict[str, Any]:
    for part in section.split("."):
        document = document.setdefault(part, {})
    return document


def row_of(section: str, name: str, format_: str | None) -> PipelineKey:
    return next(key for key in keys_of(section, format_) if key.name == name)


def with_key(section: str, name: str, value: str, format_: str | None) -> dict[str, dict[str, str]]:
    """The set keys of the template, and this one with what its comments say that it needs."""
    sections: dict[str, dict[str, str]] = {each: {} for each in SECTIONS}
    for each, key, shown, is_comment in LINES:
        if not is_comment:
            sections[each][key] = shown
    sections["source"] |= {"zookeeper.connect": '"zk:2181"', "subscribe": '"clicks"'}
    keys = sections[section]
    if format_ is not None:
        for key in [key for key in keys if not any(row.name == key for row in keys_of(section, format_))]:
            del keys[key]
        keys["format"] = toml_text(format_)
    to_do = [(name, value)]
    while to_do:
        key, shown = to_do.pop()
        keys[key] = shown
        found = row_of(section, key, format_)
        for other in found.excludes:
            keys.pop(other, None)
        more = [*found.needs, *(LOGIN if key in LOGIN else ())]
        to_do += [(other, example(section, other, format_)) for other in more if other not in keys]
    for required in keys_of(section, format_):
        if format_ is None and required.formats:
            continue
        if required.is_required and not {required.name, *required.excludes} & keys.keys():
            keys[required.name] = required.example
    return sections


def example(section: str, name: str, format_: str | None) -> str:
    row = row_of(section, name, format_)
    return row.example or row.default_text


def cases() -> list[tuple[str, str, str, str | None]]:
    """Each commented key, once for each format for which the template shows this value."""
    found = []
    for section, name, value in COMMENTED:
        rows = [key for key in keys_of(section) if key.name == name and (key.example or key.default_text) == value]
        formats = [format_ for row in rows for format_ in row.formats] or [None]
        found += [(section, name, value, format_) for format_ in dict.fromkeys(formats)]
    return found


CASES = cases()


@pytest.mark.parametrize(("section", "name", "value", "format_"), CASES, ids=[f"{c[0]}.{c[1]}-{c[3]}" for c in CASES])
def test_each_commented_key_is_valid_with_what_its_comments_name(
    section: str, name: str, value: str, format_: str | None
) -> None:
    sections = with_key(section, name, value, format_)
    text = "".join(
        f"[{each}]\n" + "".join(f"{key} = {shown}\n" for key, shown in keys.items()) for each, keys in sections.items()
    )
    if name == "consumer.config":  # its file is absent
        with pytest.raises(PipelineFileError) as caught:
            parse_pipeline(text, "/p/clicks.toml")
        assert [line.split(": ")[1] for line in caught.value.problems] == ["[source] consumer.config"]
        return
    parse_pipeline(text, "/p/clicks.toml")


def test_every_commented_key_was_tried() -> None:
    assert {(section, name) for section, name, _, _ in CASES} == {(section, name) for section, name, _ in COMMENTED}
    assert len(CASES) > 80


def test_the_keys_that_exclude_each_other_say_so() -> None:
    """All comments at once are no pipeline; each problem is a rule that the comments state."""
    text = "\n".join(
        line[1:] if (match := KEY_LINE.fullmatch(line)) and match[1] else line for line in edited().splitlines()
    )
    with pytest.raises(PipelineFileError, match="is not valid TOML: Cannot overwrite a value"):
        parse_pipeline(text, "clicks.toml")
    for key in PIPELINE_KEYS:
        for other in key.excludes:
            assert f"{other}" in key.rules
        if key.formats:
            assert all(format_ in key.rules for format_ in key.formats)
    for section, format_ in CONNECTIONS:
        assert row_of(section, "connection", format_).is_in_template


def test_what_is_active_is_valid_toml_by_itself() -> None:
    document = tomllib.loads(TEXT)
    assert nested(document, "sink") == {"format": "parquet", "path": "clicks-data/rows"}
