"""Which releases of other packages the project takes, and which it is tested with."""

from __future__ import annotations

import ast
import configparser
import inspect
import re
from importlib import metadata
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import connection, serialization
from kazoo.protocol.connection import ConnectionHandler
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from zkconsumer.zk import kazoo_connection

ROOT = Path(__file__).resolve().parents[3]
CONSTRAINTS = ROOT / "tests" / "constraints.txt"
NOT_OF_THE_TESTS = {"pre-commit", "gssapi", "crc32c"}
"""The first needs the Kerberos library of the system, which the tests play; the second is a peer in a bench."""

PINNED = {
    canonicalize_name(requirement.name): requirement
    for line in CONSTRAINTS.read_text().splitlines()
    if line and not line.startswith("#")
    for requirement in [Requirement(line)]
}


def declared() -> list[Requirement]:
    """What ``setup.py`` names; read from its text, since what is installed may be older."""
    nodes = ast.walk(ast.parse((ROOT / "setup.py").read_text()))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [Requirement(text) for text in texts if re.fullmatch(r"[\w-]+(\[\w+\])?([<>=]=.*)?", text) and "=" in text]


def required(roots: list[Requirement]) -> set[str]:
    """The distributions that these need in this environment, directly or not, and they themselves."""
    found: set[str] = set()
    to_do = [(canonicalize_name(root.name), frozenset(root.extras)) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while to_do:
        one = to_do.pop()
        if one in seen:
            continue
        seen.add(one)
        name, extras = one
        found.add(canonicalize_name(name))
        for text in metadata.distribution(name).requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                to_do.append((canonicalize_name(needed.name), frozenset(needed.extras)))
    return found


def test_everything_that_the_tests_install_has_an_exact_version() -> None:
    of_tests = [each for each in declared() if each.name not in NOT_OF_THE_TESTS]
    assert len(of_tests) > 20
    names = required(of_tests)
    assert names - PINNED.keys() == set(), "write their versions into tests/constraints.txt"
    assert [str(pin) for pin in PINNED.values() if not re.fullmatch(r"==[^*]+", str(pin.specifier))] == []


def test_each_of_these_releases_can_be_installed_with_the_oldest_python_of_ours() -> None:
    """pip refuses the whole installation if one release needs a newer Python: Debian 12 has 3.11.2."""
    pinned = [each for each in metadata.distributions() if canonicalize_name(each.metadata["Name"]) in PINNED]
    needed = {each.metadata["Name"]: each.metadata.get("Requires-Python") or "" for each in pinned}
    assert len(needed) > 60
    assert {name: text for name, text in needed.items() if not SpecifierSet(text).contains("3.11.0")} == {}


def test_tox_installs_these_versions_and_only_the_newest_run_does_not() -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    assert tox["testenv"]["set_env"] == "PIP_CONSTRAINT = {tox_root}/tests/constraints.txt"
    others = {name: section["set_env"] for name, section in tox.items() if "set_env" in section and name != "testenv"}
    assert others == {"testenv:newest": "PIP_CONSTRAINT ="}


def test_a_package_whose_private_parts_are_used_has_an_upper_bound_that_holds_the_tested_release() -> None:
    [kazoo] = [each for each in declared() if each.name == "kazoo"]
    assert any(bound.operator == "<" for bound in kazoo.specifier)
    [tested] = PINNED["kazoo"].specifier
    assert kazoo.specifier.contains(tested.version)


def test_no_package_is_needed_that_is_not_maintained() -> None:
    """pure-sasl has had no release since 2019, kerberos none since 2021."""
    assert not {"pure-sasl", "kerberos"} & {each.name for each in declared()}


HEAD = kazoo_connection.__doc__ or ""


def listed(part: str, owner: str) -> list[str]:
    """The names that the head of ``kazoo_connection`` lists of this owner in this part."""
    whole = HEAD.partition("    overridden")[2]
    overridden, _, used = whole.partition("    called, read")
    text = {"overridden": overridden, "used": used}[part]
    [names] = re.findall(rf"``{re.escape(owner)}``: ([^:]*?)(?=``[\w.]+``:|\Z)", text, re.DOTALL)
    return re.findall(r"``(\w+)``", names)


@pytest.mark.parametrize(
    ("ours", "base"),
    [
        (kazoo_connection._KazooConnection, ConnectionHandler),
        (kazoo_connection._KazooHandler, SequentialThreadingHandler),
    ],
)
def test_what_is_overridden_is_there_and_is_listed(ours: type, base: type) -> None:
    functions = {name for name, value in vars(ours).items() if inspect.isfunction(value) and name != "__init__"}
    overridden = {name for name in functions if hasattr(base, name)}
    assert overridden == set(listed("overridden", base.__name__))


def test_what_is_used_of_kazoo_is_there() -> None:
    client = KazooClient("h:1")
    objects = {
        "KazooClient": client,
        "ConnectionHandler": ConnectionHandler(client, client._conn_retry.copy()),
    }
    for owner, value in objects.items():
        assert [name for name in listed("used", owner) if not hasattr(value, name)] == []
    modules = vars(connection) | vars(serialization)
    assert [name for name in listed("used", "kazoo.protocol") if name not in modules] == []


def test_every_private_name_of_kazoo_s_client_that_is_used_is_listed() -> None:
    source = inspect.getsource(kazoo_connection)
    used = set(re.findall(r"(?:self\._client|client)\.(_\w+)", source))
    assert used <= set(listed("used", "KazooClient")) | {"_connection"}


# --- what texts promise -----------------------------------------------------------------------------------------------

RELEASE_TOOLS = {"build", "cibuildwheel", "twine"}
PUBLISHED = {canonicalize_name(each.name) for each in declared()} | {"kafka-python", "tox", "venv-pack"} | RELEASE_TOOLS
"""What may be installed by name.  This package is not among them as long as no release of it is published."""

TEXTS = [
    path
    for pattern in ("*.md", "*.py", "migration_docs/**/*.md", "zkconsumer/**/*.py", "bridge/**/*.py", "bench/**/*.py",
                    "pyspark_zkconsumer/**/*.py", "tests/**/*.py")
    for path in sorted(ROOT.glob(pattern))
    if path != Path(__file__)
]  # fmt: skip

OWN_EXTRA = re.compile(r"zkconsumer\[(?!etl\])\w+\]")
"""A package of ours by name.  Not ``etl``: a test shows the lag of a query as that of ``zkconsumer[etl]``."""

EXTRAS = set(re.findall(r'^        "([\w-]+)": ', (ROOT / "setup.py").read_text().partition("extras_require")[2], re.M))


AFTER_THE_COMMAND = re.compile(r"in|on|where|with|and|or|\(.*")
"""Words of the sentence around a command."""


def promised(text: str) -> list[str]:
    """What the commands ``pip install``, ``pip download`` and ``pip wheel`` in a text name: packages and paths."""
    found = []
    for command in re.findall(r"\bpip (?:install|download|wheel) ([^\n`|&;]*)", text):
        for word in re.findall(r"'[^']*'|\"[^\"]*\"|[^\s'\"]+", command):
            bare = word.strip("'\"")
            if AFTER_THE_COMMAND.fullmatch(bare):
                break
            if not bare.startswith("-"):
                found.append(bare.rstrip(",:)"))
            if word[-1] in ",:)":
                break
    return [name for name in found if name]


def wrong_promise(name: str) -> str:
    """Why this cannot be installed; "" when it can."""
    extra = re.fullmatch(r"\.\[([\w,-]+)\]", name)
    if extra is not None:
        return "" if set(extra[1].split(",")) <= EXTRAS else f"there is no extra {extra[1]}"
    if re.match(r"\.$|\$|dist/|dist$|/", name):
        return ""  # a path
    package = canonicalize_name(re.split(r"[\[<>=!~]", name)[0])
    return "" if package in PUBLISHED else f"{package} is not published, or not known here"


@pytest.mark.parametrize(
    ("text", "names", "is_wrong"),
    [
        ("`pip install 'zkconsumer[spark]'` (pyspark 4.2)", ["zkconsumer[spark]"], True),
        ("env/bin/pip install zkconsumer pyarrow", ["zkconsumer", "pyarrow"], True),
        ("pip download --no-deps zkconsumer && cp", ["zkconsumer"], True),
        ("pip install '.[sprk]'", [".[sprk]"], True),
        ("pip install --quiet . && x", ["."], False),
        ("pip install '.[spark]' in a clone", [".[spark]"], False),
        ("pip install 'pyspark>=4.2', on a cluster", ["pyspark>=4.2"], False),
    ],
)
def test_promises_of_packages_are_found(text: str, names: list[str], is_wrong: bool) -> None:
    found = promised(text)
    assert found[: len(names)] == names
    assert any(wrong_promise(name) for name in names) == is_wrong


def test_no_text_promises_a_package_that_is_not_published() -> None:
    """Pages, errors and code: what they say to install by name must be there."""
    wrong = []
    for path in TEXTS:
        text = path.read_text("utf-8")
        wrong += [f"{path.relative_to(ROOT)}: {word} {why}" for word in promised(text) if (why := wrong_promise(word))]
        wrong += [f"{path.relative_to(ROOT)}: {one}" for one in OWN_EXTRA.findall(text)]
    assert wrong == []
