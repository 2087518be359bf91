"""What a release must be like, as far as it shows without a build; ``tests/run_installed.py`` builds one."""

from __future__ import annotations

import ast
import email
import re
import tomllib
from email.message import Message
from pathlib import Path

import pytest
import yaml

from tests.release_checks import (
    COMPILED,
    LICENSE_EXPRESSION,
    LICENSES,
    PACKAGES,
    sdist_problems,
    tag_problems,
    tree_version,
    wheel_problems,
)
from tests.run_installed import PYTHONS, TEST_TOOLS
from zkconsumer import extensions
from zkconsumer.version import __version__

ROOT = Path(__file__).resolve().parents[3]
CITATION = (ROOT / "CITATION.cff").read_text()
SETUP = (ROOT / "setup.py").read_text()


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    cited = yaml.safe_load(CITATION)
    assert cited["version"] == __version__ == tree_version()
    assert cited["license"] == LICENSE_EXPRESSION.partition(" AND ")[0]
    assert cited["title"] == "zkconsumer"
    assert f'license_expression="{LICENSE_EXPRESSION}"' in SETUP
    assert f"license_files={list(LICENSES)}".replace("'", '"') in SETUP


def test_each_part_of_the_licence_expression_has_its_file() -> None:
    first_lines = [(ROOT / name).read_text().split(maxsplit=3)[:3] for name in LICENSES]
    assert first_lines == [["Apache", "License", "Version"], ["The", "MIT", "License"]]
    vendored = [path.relative_to(ROOT).as_posix() for name in PACKAGES for path in (ROOT / name).rglob("LICENSE*")]
    assert vendored == [name for name in LICENSES if "/" in name], "a vendored work is named in the licence expression"


def test_a_tag_that_is_not_the_version_of_the_tree_is_refused() -> None:
    changelog = "# Changelog\n\n## 1.2.0 (2026-11-30)\n\n- x\n\n## 1.1.0 (2026-01-01)\n"
    assert tag_problems("v1.2.0", "1.2.0", "version: 1.2.0\n", changelog) == []
    [found] = tag_problems("v1.2.1", "1.2.0", "version: 1.2.0\n", changelog)
    assert found == "the tag is v1.2.1, but zkconsumer/version.py has 1.2.0, whose tag is v1.2.0"
    assert len(tag_problems("1.2.0", "1.2.0", "version: 1.2.0\n", changelog)) == 1
    [found] = tag_problems("v1.2.0", "1.2.0", "version: 1.1.0\n", changelog)
    assert found.startswith("CITATION.cff has the version 1.1.0")
    [found] = tag_problems("v1.2.0", "1.2.0", "version: 1.2.0\n", "## 1.2.0 (unreleased)\n" + changelog)
    assert found.startswith("the first heading of CHANGELOG.md is ['1.2.0 (unreleased)']")


TRACKED = [
    "CHANGELOG.md", "LICENSE", "setup.py", "tests/test_a.py", "zkconsumer/__init__.py", "zkconsumer/wire/_records.c",
    "zkconsumer/wire/crc.h", "bridge/__init__.py", LICENSES[1], "pyspark_zkconsumer/py.typed",
]  # fmt: skip
INFO = "zkconsumer-1.dist-info"
WHEEL = [
    "zkconsumer/__init__.py", "bridge/__init__.py", LICENSES[1], "pyspark_zkconsumer/py.typed", f"{INFO}/METADATA",
    *(f"{INFO}/licenses/{name}" for name in LICENSES), *(f"zkconsumer/{name}.abi3.so" for name in COMPILED),
]  # fmt: skip


def metadata() -> Message:
    lines = [f"License-Expression: {LICENSE_EXPRESSION}", *(f"License-File: {name}" for name in LICENSES)]
    return email.message_from_string("\n".join(lines))


@pytest.mark.parametrize("missing", WHEEL)
def test_a_wheel_without_one_of_its_files_is_refused(missing: str) -> None:
    assert wheel_problems(WHEEL, metadata(), TRACKED) == []
    names = [name for name in WHEEL if name != missing]
    problems = wheel_problems(names, metadata(), TRACKED)
    assert problems if missing != f"{INFO}/METADATA" else not problems


@pytest.mark.parametrize("extra", ["tests/test_a.py", "zkconsumer/wire/crc.h", "build/lib/x.py", "zkconsumer/old.py"])
def test_a_wheel_with_a_file_that_is_no_part_of_the_packages_is_refused(extra: str) -> None:
    [found] = wheel_problems([*WHEEL, extra], metadata(), TRACKED)
    assert found == f"the wheel has {extra}, which is not in the packages of the tree"


def test_a_wheel_without_the_licence_in_its_metadata_is_refused() -> None:
    assert len(wheel_problems(WHEEL, email.message_from_string("License: Apache-2.0"), TRACKED)) == 2


def test_a_source_archive_has_the_tree_and_nothing_else() -> None:
    made = ["PKG-INFO", "setup.cfg", "zkconsumer.egg-info/SOURCES.txt"]
    assert sdist_problems([*TRACKED, *made], TRACKED) == []
    [found] = sdist_problems([*TRACKED[1:], *made], TRACKED)
    assert found == "the source archive lacks CHANGELOG.md"
    [found] = sdist_problems([*TRACKED, *made, "zkconsumer/base/_arrow.abi3.so"], TRACKED)
    assert found.startswith("the source archive has zkconsumer/base/_arrow.abi3.so")


def test_the_compiled_modules_of_a_wheel_are_those_of_the_package() -> None:
    assert tuple(f"zkconsumer.{name.replace('/', '.')}" for name in COMPILED) == extensions.EXTENSION_MODULES


def functions_of_setup(url: str) -> dict[str, object]:
    """The functions of ``setup.py`` with the environment's address of the repository, without running ``setup``."""
    tree = ast.parse(SETUP)
    unwanted = ("setuptools", "Extension", "COMPILED")
    kept = [
        node
        for node in tree.body
        if not isinstance(node, ast.Expr) and not any(word in ast.unparse(node) for word in unwanted)
    ]
    names: dict[str, object] = {"__file__": str(ROOT / "setup.py")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZKCONSUMER_REPOSITORY_URL", url)
        exec(compile(ast.Module(kept, []), "setup.py", "exec"), names)
    return names


def test_the_links_of_the_metadata_lead_to_the_files_of_the_tag() -> None:
    names = functions_of_setup("https://host.example/o/r/")
    urls = names["project_urls"]()  # type: ignore[operator]
    assert urls["Source"] == "https://host.example/o/r"
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    prefix = f"https://host.example/o/r/blob/v{__version__}/"
    for url in (urls["Documentation"], urls["Changelog"]):
        assert url.startswith(prefix)
        assert (ROOT / url.removeprefix(prefix)).is_file()
    text = names["long_description"]()  # type: ignore[operator]
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'src="([^"]+)"', text)]
    assert len(links) > 10
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert f"(https://host.example/o/r/raw/v{__version__}/migration_docs/overview.svg)" in text


def test_without_an_address_the_metadata_has_no_link() -> None:
    names = functions_of_setup("")
    assert names["project_urls"]() == {}  # type: ignore[operator]
    assert names["long_description"]() == (ROOT / "README.md").read_text()  # type: ignore[operator]


WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())


def test_only_a_tag_publishes_and_no_pull_request_starts_the_workflow() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}, "workflow_dispatch": None}, "YAML reads the key on as true"
    publish = WORKFLOW["jobs"]["publish"]
    assert publish["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    assert publish["needs"] == "check"
    assert set(WORKFLOW["jobs"]["check"]["needs"]) == {"source", "wheels"}
    assert publish["steps"][-1]["with"] == {"attestations": True}
    site = WORKFLOW["jobs"]["publish-site"]
    assert (site["if"], site["needs"]) == (publish["if"], ["publish", "site"])


def test_only_the_jobs_that_publish_have_a_right_and_they_run_no_code_of_the_repository() -> None:
    assert WORKFLOW["permissions"] == {}
    rights = {name: job["permissions"] for name, job in WORKFLOW["jobs"].items()}
    assert rights.pop("publish") == {"id-token": "write"}
    assert rights.pop("publish-site") == {"id-token": "write", "pages": "write"}
    assert all(each == {"contents": "read"} for each in rights.values())
    steps = [step for name in ("publish", "publish-site") for step in WORKFLOW["jobs"][name]["steps"]]
    assert [step for step in steps if "run" in step or "checkout" in step["uses"]] == []
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_the_site_is_built_by_the_release_of_tox_that_the_tests_use() -> None:
    constraints = (ROOT / "tests" / "constraints.txt").read_text().split("\n")
    [tox] = [each for each in constraints if each.startswith("tox==")]
    assert any(step.get("run") == f"pipx run {tox} -e site" for step in WORKFLOW["jobs"]["site"]["steps"])


def test_each_action_is_pinned_to_a_commit_and_each_tool_to_a_release() -> None:
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert [each for each in actions if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", each)] == []
    tools = [step["run"] for step in steps if "pipx" in step.get("run", "")]
    assert tools
    assert [each for each in tools if not re.match(r"pipx run [\w-]+==[\d.]+ ", each)] == []


def test_the_wheels_are_tested_with_each_python_that_the_metadata_name() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', SETUP)
    assert settings["build"] == [f"cp{each.replace('.', '')}-*" for each in named]
    assert list(PYTHONS) == named
    for name in (*settings["test-sources"], "tests/run_installed.py"):
        assert (ROOT / name).exists()
    assert set(settings["test-requires"]) <= set(TEST_TOOLS)
