"""Whether a test that a page cites uses the names that the page cites it for.

A row of a table names what there is (a class, a function, a setting) in files of the product, and tests that show it.
That a test exists says little.  It must also use the names of its row, by the rules of ``Row.problems``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("zkconsumer", "bridge")
CORE = "zkconsumer/member/"
"""What a transcript runs: the bare ``Group``, without network, streams or ZooKeeper."""

FILE = re.compile(r"(?<![\w/.])(?:zkconsumer|bridge|tests|bench|migration_docs)/[\w./-]*[\w/](?:::\w+)?")
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"(?:\w+\.)*_*[A-Za-z]\w*")
COMMAND = re.compile(r"zkconsumer ([a-z][a-z-]*(?: [a-z][a-z-]*)?)")
WORD = re.compile(r"[\w./-]*\w")
IN_TRANSCRIPTS = {
    "backoff": "rebalance_backoff_ms",
    "debounce": "rebalance_debounce_ms",
    "settle": "release_settle_ms",
    "commit-interval": "auto_commit_interval_ms",
}
"""What transcripts call some settings."""
CONNECTORS = frozenset({"ZookeeperConsumerConnector", "createJavaConsumerConnector"})
MADE_OF = tuple(
    f"zkconsumer/{part}" for part in ("connector", "member/", "kafka/", "observe/", "runtime/", "streams.py")
)
"""What a whole connector is made of: a test that has one uses all of it.  Tests replace ZooKeeper."""
BESIDE = ("zkconsumer/javaapi", "zkconsumer/wire/", "zkconsumer/zk/")
"""What a connector works with besides; a sentence may be about it as a whole."""
COMMAND_LINE = frozenset({"tool", "CliRunner"})
"""How tests run the commands."""
OF_COMMANDS = ("zkconsumer/admin/", "zkconsumer/cli/")
WITH_PROGRAMS = ("tests/real/", "tests/whole_consumer/")
"""Where tests start programs, of which each has a whole connector, or is a command."""
SHARED = (ROOT / "tests" / "conftest.py", ROOT / "tests" / "in_memory_fixtures.py")
"""Where fixtures are that every test may use."""

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


# --- what source uses -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Used:
    """The identifiers of some source, the words inside its texts, and what its functions take (fixtures, in a test).

    Docstrings and comments do not count.
    """

    names: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()

    def __or__(self, other: Used) -> Used:
        parts = (self.names | other.names, self.words | other.words, self.parameters | other.parameters)
        return Used(*parts)


NOTHING = Used()


def used_in(node: ast.AST) -> Used:
    """What this piece of source uses."""
    names: set[str] = set()
    words: set[str] = set()
    docstrings = {id(each.body[0].value) for each in ast.walk(node) if _has_docstring(each)}  # type: ignore[attr-defined]
    for each in ast.walk(node):
        match each:
            case ast.Name(name) | ast.Attribute(attr=name) | ast.arg(name) | ast.keyword(str(name)) | ast.alias(name):
                names.add(name.rpartition(".")[2])
            case ast.Constant(str(text)) if id(each) not in docstrings:
                words.update(WORD.findall(text))
                if text.isidentifier():
                    names.add(text)
            case _:
                pass
    parameters = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return Used(frozenset(names), frozenset(words), frozenset(parameters))


def _has_docstring(node: ast.AST) -> bool:
    holds_one = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    return holds_one and ast.get_docstring(node, clean=False) is not None


@cache
def names_in(path: Path) -> frozenset[str]:
    """The identifiers that a module uses."""
    return used_in(ast.parse(path.read_text("utf-8"))).names


@cache
def definitions(path: Path) -> Mapping[str, tuple[Definition, ...]]:
    """The functions, classes and variables at the top of a module, by name."""
    found: dict[str, tuple[Definition, ...]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.AnnAssign(ast.Name(name)):
                names = [name]
            case ast.Assign(targets):
                names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            case _:
                continue
        for name in names:
            found[name] = (*found.get(name, ()), node)
    return found


@cache
def definition_uses(path: Path, name: str) -> Used:
    """What the definitions of this name use."""
    used = NOTHING
    for node in definitions(path)[name]:
        used |= used_in(node)
    return used


@cache
def uses_of(path: Path, test: str, *, beyond: bool) -> Used:
    """What a test uses with the helpers, fixtures and values of its module; without a name, the whole module.

    ``beyond``: also with the helpers that it imports from other modules below ``tests``, and shared fixtures.
    """
    used = NOTHING if test else used_in(ast.parse(path.read_text("utf-8")))
    ahead = [(path, test)] if test else _leads(path, used, beyond=beyond)
    seen: set[tuple[Path, str]] = set()
    while ahead:
        home, name = found = ahead.pop()
        if found not in seen and name in definitions(home):
            seen.add(found)
            used |= definition_uses(home, name)
            ahead += _leads(home, definition_uses(home, name), beyond=beyond)
    return used


def _leads(path: Path, used: Used, *, beyond: bool) -> list[tuple[Path, str]]:
    """Where the names that this module uses are defined: here, or, with ``beyond``, in another module of the tests."""
    found = [(path, name) for name in used.names if name in definitions(path)]
    if beyond:
        others = imported(path)
        found += [(others[name], name) for name in used.names & others.keys()]
        found += [(home, name) for home in SHARED for name in used.parameters & definitions(home).keys()]
    return found


@cache
def imported(path: Path) -> Mapping[str, Path]:
    """Name -> the module below ``tests`` that it comes from."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            home = ROOT / f"{(node.module or '').replace('.', '/')}.py"
            found |= {each.name: home for each in node.names if home.exists()}
    return found


@cache
def defining_files() -> Mapping[str, frozenset[str]]:
    """Name -> the product's files that define something of this name: function, class, attribute, variable."""
    found: dict[str, set[str]] = defaultdict(set)
    pattern = re.compile(r"(?m)^ *(?:def|class) +(\w+)|^ *(?:self\.)?(\w+)(?:: [^=\n]+)?(?: = |$)|^ *(\w+): [\w.]")
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            for each in pattern.findall(path.read_text("utf-8")):
                found["".join(each)].add(path.relative_to(ROOT).as_posix())
    return {name: frozenset(files) for name, files in found.items()}


# --- a row ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Citation:
    """``tests/unit/test_x.py::test_y``, ``tests/unit/test_x.py`` or a transcript."""

    text: str

    @property
    def is_transcript(self) -> bool:
        return self.text.endswith(".txt")

    @property
    def path(self) -> Path:
        return ROOT / self.text.partition("::")[0]

    @property
    def exists(self) -> bool:
        test = self.text.partition("::")[2]
        return self.path.is_file() and (not test or test in definitions(self.path))

    def uses(self, *, beyond: bool = False) -> Used:
        """See ``uses_of``; of a transcript the settings (``settings backoff=…``) and timers (``timer debounce``)."""
        if self.is_transcript:
            text = self.path.read_text("utf-8")
            found = re.findall(r"(?m)^settings (.*)$|\btimer ([\w-]+)", text)
            return Used(words=frozenset(re.findall(r"[\w-]+", " ".join("".join(each) for each in found))))
        return uses_of(self.path, self.text.partition("::")[2], beyond=beyond)

    def runs(self, files: Iterable[str], of_connectors: tuple[str, ...]) -> bool:
        """Whether this test runs one of these files of the product without naming it.

        A transcript runs the core, a test with a whole connector what is ``of_connectors``, one with commands the
        commands; what starts programs has both.
        """
        if self.is_transcript:
            return any(file.startswith(CORE) for file in files)
        used = self.uses(beyond=True).names
        has_programs = self.text.startswith(WITH_PROGRAMS)
        parts = of_connectors if has_programs or used & CONNECTORS else ()
        parts += OF_COMMANDS if has_programs or used & COMMAND_LINE else ()
        return any(file.startswith(parts) for file in files)


@dataclass(frozen=True)
class Row:
    """``subject``: what the row is about; ``here``: what it says, with names and files; ``tests``: its citations."""

    subject: str
    here: str
    tests: str
    settings: frozenset[str]
    """Every setting there is: in these rows they are names, too."""

    @property
    def citations(self) -> list[Citation]:
        return [Citation(text) for text in FILE.findall(self.tests)]

    @property
    def files(self) -> list[str]:
        """The product's files that the row names."""
        return [text for text in FILE.findall(self.here) if (ROOT / text).is_file() and text.startswith(PRODUCT)]

    def names(self) -> list[str]:
        """What the tests must use: settings, names that the row's files define, commands of the command line."""
        found = [code for code in CODE.findall(self.subject) if code in self.settings]
        attributes = {key.replace(".", "_") for key in found}
        for code in CODE.findall(self.here):
            command = COMMAND.match(code)
            if command is not None:
                found.append(command[0])
            elif code in self.settings or (NAME.fullmatch(code) and code not in attributes and self._homes(code)):
                found.append(code)
        return list(dict.fromkeys(found))

    def _homes(self, name: str) -> list[str]:
        """The row's files that define the name, or else those that speak of it."""
        last = name.rpartition(".")[2]
        defining = [file for file in self.files if file in defining_files().get(last, ())]
        return defining or [file for file in self.files if last in names_in(ROOT / file)]

    def uses(self, citation: Citation, name: str) -> bool:
        """Whether this test uses this name.

        A setting: by its key, or the key with underscores.  A command: by its words.  Another name: by itself, unless
        several files of the product define that name; or by something at the top of one of the row's files that is
        called so, or leads to it (the class of a method, what makes an object, the caller of a private function); or
        by its name in the Java API.  Or the test runs the file that defines it: see ``Citation.runs``.
        """
        if name in self.settings:
            used = citation.uses()
            if citation.is_transcript:
                return name.replace(".", "_") in {IN_TRANSCRIPTS.get(word) for word in used.words}
            return bool({name, name.replace(".", "_")} & (used.names | used.words))
        used = citation.uses(beyond=True)
        if name.startswith("zkconsumer "):
            return set(name.split()[1:]) <= used.words
        if citation.runs(self._homes(name), MADE_OF):
            return True
        if citation.is_transcript:
            return False
        last = name.rpartition(".")[2]
        if last in used.names and len(defining_files()[last]) == 1:
            return True
        return bool(used.names & (self._callers(last) | self._java_names()))

    @cache  # noqa: B019 (rows are few)
    def _callers(self, name: str) -> set[str]:
        """What is defined at the top of the row's files and is called so, or uses it, also by way of each other."""
        tops = [(ROOT / file, top) for file in self.files for top in definitions(ROOT / file)]
        found = {name}
        while more := {top for file, top in tops if top not in found and found & _names_within(file, top)}:
            found |= more
        return found & {top for _, top in tops}

    def _java_names(self) -> set[str]:
        return {last for code in CODE.findall(self.subject) if re.search("[a-z][A-Z]", last := code.rpartition(".")[2])}

    def problems(self) -> Iterator[str]:
        """Tests that are not there, names that no cited test uses, tests that use none of the names."""
        there = [citation for citation in self.citations if citation.exists]
        for citation in self.citations:
            if citation not in there:
                yield f"{citation.text} is not there"
        names = self.names()
        for name in names:
            if there and not any(self.uses(citation, name) for citation in there):
                yield f"no cited test uses {name}"
        for citation in there:
            if not any(self.uses(citation, name) for name in names):
                yield f"{citation.text} uses none of {', '.join(names) or 'no names'}"

    def problems_of_prose(self) -> Iterator[str]:
        """The same for a row in which sentences say what is done, and files where.

        Settings and commands that the sentences name must be used, and each test must use something of these files.
        """
        there = [citation for citation in self.citations if citation.exists]
        yield from (f"{citation.text} is not there" for citation in self.citations if citation not in there)
        for name in self.names():
            is_checked = name in self.settings or name.startswith("zkconsumer ")
            if is_checked and not any(self.uses(citation, name) for citation in there):
                yield f"no cited test uses {name}"
        for citation in there:
            if not self._touches_files(citation):
                yield f"{citation.text} uses nothing of {', '.join(self.files)}"

    def _touches_files(self, citation: Citation) -> bool:
        public = {top for file in self.files for top in definitions(ROOT / file) if not top.startswith("_")}
        return citation.runs(self.files, (*MADE_OF, *BESIDE)) or bool(citation.uses(beyond=True).names & public)


@cache
def _names_within(path: Path, top: str) -> frozenset[str]:
    """Every name that the definition uses, or defines inside."""
    inside: set[str] = set()
    for node in definitions(path)[top]:
        inside |= {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return definition_uses(path, top).names | inside


# --- ported tests -------------------------------------------------------------------------------------------------


def snake_case(name: str) -> str:
    """``testBasic`` as it is written here."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def ported_problems(original: str, tests: str) -> Iterator[str]:
    """A ported test has the name of Kafka's test, or its text has the name of Kafka's class.

    ``original``: the class, or class and test.  Of a whole module the docstring must name it.
    """
    kafkas_class, _, kafkas_test = original.rpartition(" ")[2].partition(".")
    for citation in map(Citation, FILE.findall(tests)):
        if not citation.exists:
            yield f"{citation.text} is not there"
            continue
        test = citation.text.partition("::")[2]
        source = citation.path.read_text("utf-8")
        if test:
            text = "\n".join(ast.get_source_segment(source, node) or "" for node in definitions(citation.path)[test])
        else:
            text = ast.get_docstring(ast.parse(source)) or ""
        is_called_so = bool(kafkas_test) and test == snake_case(kafkas_test)
        if not is_called_so and not re.search(rf"\b{kafkas_class}\b", text):
            yield f"{citation.text} does not say that it is {original}"
