"""Every type that a program meets in the public API can be imported from where the API is.

A typed program annotates what it gets and what it gives; a type that only a private module has makes it import that.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import pytest

from tests.public_api import MADE_HERE, OPAQUE

PLACES = {
    "zkconsumer": ("zkconsumer",),
    "zkconsumer.javaapi": ("zkconsumer.javaapi", "zkconsumer"),
    "bridge": ("bridge", "zkconsumer"),
}
"""Module -> from where what its signatures name may be imported."""

OURS = ("zkconsumer", "bridge")

INTERNAL = {
    "ConsumerConfig.ORIGIN": "the reference page names it",
    "ConsumerConfig.describe": "the reference page is made of it",
    "ConsumerConfig.outcome_of": "the reference page is made of it",
    "ConsumerConfig.find_setting": "the reference page is made of it",
    "ConsumerConfig.is_required": "for the configurations that derive from it",
    "ConsumerIterator.delivery": "connectors read it",
    "ConsumerIterator.unacknowledged_position": "connectors ask it",
    "CoordinatorConsumerConfig.ORIGIN": "the reference page names it",
    "CoordinatorConsumerConfig.describe": "the reference page is made of it",
    "CoordinatorConsumerConfig.outcome_of": "the reference page is made of it",
    "CoordinatorConsumerConfig.find_setting": "the reference page is made of it",
    "CoordinatorConsumerConfig.is_required": "derived",
    "KafkaConsumerConfig.ORIGIN": "the reference page names it",
    "KafkaConsumerConfig.describe": "the reference page is made of it",
    "KafkaConsumerConfig.outcome_of": "the reference page is made of it",
    "KafkaConsumerConfig.find_setting": "the reference page is made of it",
    "KafkaConsumerConfig.is_required": "derived",
}
"""Members without an underscore that are not for programs, and why they are there."""

SPECIAL = ("__init__", "__new__", "__call__", "__enter__", "__iter__", "__next__")


@cache
def names_in(module: str) -> dict[str, tuple[str, str]]:
    """What the names of a module stand for, of ours: name -> (module, name there); "" for the module itself."""
    found: dict[str, tuple[str, str]] = {}
    tree = ast.parse(inspect.getsource(import_module(module)))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            found |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = module, node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: (module, target.id) for target in targets if isinstance(target, ast.Name)}
    return found


def thing(module: str, name: str) -> Any:
    """The attribute of a module, or a module in a package."""
    home = import_module(module)
    return getattr(home, name) if hasattr(home, name) else import_module(f"{module}.{name}")


def named(module: str, annotation: str) -> Iterator[tuple[str, Any]]:
    """Everything of ours that an annotation names, as it is written in this module."""
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        match node:
            case ast.Constant(str(text)):
                yield from named(module, text)
            case ast.Attribute(ast.Name(base), attribute) if base in names_in(module):
                yield attribute, getattr(thing(*names_in(module)[base]), attribute)
            case ast.Name(name) if name in names_in(module):
                found = thing(*names_in(module)[name])
                if not isinstance(found, TypeVar) and not inspect.ismodule(found):
                    yield name, found
            case _:
                pass


def annotations(name: str, public: Any) -> Iterator[tuple[str, str, str]]:
    """Where, in which module, and what: every annotation of a public class or function."""
    if inspect.isfunction(public):
        for annotation in public.__annotations__.values():
            yield name, public.__module__, annotation
    if not inspect.isclass(public) or name in OPAQUE:
        return
    overridden: set[str] = set()
    for kind in public.__mro__:
        if kind.__module__.partition(".")[0] not in OURS:
            continue
        fields = inspect.get_annotations(kind).items()
        rows = [(attribute, {attribute: annotation}) for attribute, annotation in fields]
        for attribute, member in vars(kind).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            is_makers = name in MADE_HERE and attribute in ("__init__", "__new__")
            if inspect.isfunction(function) and attribute not in overridden and not is_makers:
                rows.append((attribute, function.__annotations__))
        overridden |= vars(kind).keys()
        for attribute, texts in rows:
            where = f"{name}.{attribute}"
            if where not in INTERNAL and (not attribute.startswith("_") or attribute in SPECIAL):
                for text in texts.values():
                    # A named tuple's constructor has values of ``typing`` in the place of texts.
                    text = text if isinstance(text, str) else getattr(text, "__forward_arg__", "None")
                    yield where, kind.__module__, text


def exported(place: str) -> list[Any]:
    return [getattr(import_module(place), name) for name in import_module(place).__all__]


@pytest.mark.parametrize("place", PLACES)
def test_every_type_in_a_public_signature_can_be_imported_from_there(place: str) -> None:
    there = [public for allowed in PLACES[place] for public in exported(allowed)]
    missing = {
        f"{type_name} in {where}"
        for name in import_module(place).__all__
        for where, module, annotation in annotations(name, getattr(import_module(place), name))
        for type_name, found in named(module, annotation)
        if not any(found is public for public in there)
    }
    assert not missing, f"{place} does not export these"


def test_the_walk_sees_what_it_is_there_for() -> None:
    """An annotation under a name of its own, one in another module, an alias, and one of a base class."""
    zkconsumer, javaapi = import_module("zkconsumer"), import_module("zkconsumer.javaapi")

    def seen(name: str, public: Any) -> set[str]:
        return {found for _, module, text in annotations(name, public) for found, _ in named(module, text)}

    assert seen("Consumer", javaapi.Consumer) >= {"ConsumerConfig", "ConsumerConnector"}
    assert seen("ConsumerRebalanceListener", zkconsumer.ConsumerRebalanceListener) == {"ConsumerThreadId"}
    connector = seen("ZookeeperConsumerConnector", zkconsumer.ZookeeperConsumerConnector)
    assert connector >= {"Decoder", "Position", "MetricSample", "TopicFilter", "ConsumerRebalanceListener", "ZkStore"}
    assert "ConnectorMember" not in connector


def test_what_is_left_out_of_the_walk_exists() -> None:
    for where in INTERNAL:
        name, _, member = where.partition(".")
        place = next(place for place in PLACES if name in import_module(place).__all__)
        public = getattr(import_module(place), name)
        assert any(member in vars(kind) or member in inspect.get_annotations(kind) for kind in public.__mro__), where


def test_both_apis_have_one_class_for_a_thread() -> None:
    zkconsumer, javaapi = import_module("zkconsumer"), import_module("zkconsumer.javaapi")
    assert javaapi.ConsumerThreadId is zkconsumer.ConsumerThreadId


@pytest.mark.parametrize("place", PLACES)
def test_every_exported_name_exists_once(place: str) -> None:
    names = import_module(place).__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(import_module(place), name) for name in names)


def test_the_package_of_the_client_has_what_it_defines() -> None:
    """A program may write ``bridge.client.KafkaConsumer``: ``bridge`` has the table, and its names are here, too."""
    bridge, client = import_module("bridge"), import_module("bridge.client")
    assert client.__all__ == [
        name for name, module in bridge._MODULE_BY_NAME.items() if f"{module}.".startswith("bridge.client.")
    ]
    assert "KafkaConsumer" in client.__all__
    assert all(getattr(client, name) is getattr(bridge, name) for name in client.__all__)


@pytest.mark.parametrize("place", ["zkconsumer", "bridge", "bridge.client", "bridge.spark"])
def test_a_package_lists_its_names_before_one_is_loaded(place: str) -> None:
    """The interactive interpreter completes names from ``dir``."""
    assert dir(import_module(place)) == sorted(import_module(place).__all__)
    with pytest.raises(AttributeError, match=f"module '{place}' has no attribute 'Nothing'"):
        _ = import_module(place).Nothing
