"""The pages about ``KafkaConsumer`` name every setting, metric and method, once."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator

import pytest

from bridge import KafkaConsumer, KafkaConsumerConfig
from tests.generate_docs import REFERENCE, kafkas_defaults, kafkas_keys
from tests.reference_pages.consumer_metrics_table import MEANINGS, all_metrics
from tests.reference_pages.kafka_consumer_config_page import render
from tests.unit.project.test_docs import code_in, table_rows
from zkconsumer.config_def import default_text
from zkconsumer.errors import InvalidConfigException

CONFIG_PAGE = REFERENCE / "kafka-consumer-config.md"
BROKER = {"bootstrap.servers": "host:9092"}


def keys_of_tables() -> Iterator[str]:
    """The first cell of each row that is about one key: settings, keys without effect, errors."""
    page = CONFIG_PAGE.read_text("utf-8")
    for part in page.split("\n## "):
        if not part.startswith(("Differences", "Settings that must")):
            lines = [line for line in part.splitlines() if line.startswith("| `")]
            yield from (code_in(line.split(" | ")[0])[0] for line in lines)


def test_each_key_of_kafkas_consumer_has_one_row_on_the_page_of_settings() -> None:
    counts = Counter(keys_of_tables())
    assert [key for key, count in counts.items() if count > 1] == []
    assert kafkas_keys().keys() - counts.keys() == set()
    assert {row.key for row in KafkaConsumerConfig.describe()} - counts.keys() == set()


def test_a_key_that_is_an_error_on_the_page_is_one() -> None:
    page = CONFIG_PAGE.read_text("utf-8").partition("## Keys that are errors")[2]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert rows
    for key, accepted, _ in rows:
        [name] = code_in(key)
        with pytest.raises(InvalidConfigException, match=name):
            KafkaConsumerConfig({**BROKER, name: "another value"})
        for value in code_in(accepted):
            KafkaConsumerConfig({**BROKER, name: value})


def test_a_key_without_effect_on_the_page_is_named_by_the_configuration() -> None:
    page = CONFIG_PAGE.read_text("utf-8").partition("## Keys without effect")[2].partition("\n## ")[0]
    keys = [code_in(line)[0] for line in page.splitlines() if line.startswith("| `")]
    config = KafkaConsumerConfig({**BROKER, **dict.fromkeys(keys, "1")})
    assert config.ignored.keys() == set(keys)


@pytest.mark.parametrize(
    "settings",
    [
        {"enable.auto.commit": "true"},
        {"heartbeat.interval.ms": 3000, "session.timeout.ms": 3000},
        {"fetch.max.wait.ms": 30_000, "request.timeout.ms": 30_000},
    ],
)
def test_the_settings_that_must_fit_each_other_do_not(settings: dict[str, object]) -> None:
    page = CONFIG_PAGE.read_text("utf-8").partition("## Settings that must fit each other")[2].partition("\n## ")[0]
    assert all(f"`{key}`" in page for key in settings)
    with pytest.raises(InvalidConfigException):
        KafkaConsumerConfig({**BROKER, **settings})


def test_the_page_shows_lists_as_a_file_has_them() -> None:
    assert default_text(KafkaConsumerConfig.partition_assignment_strategy) == "range,cooperative-sticky"
    assert default_text(KafkaConsumerConfig.interceptor_classes) == "none"
    assert "('" not in render(kafkas_keys(), kafkas_defaults())


def test_each_metric_has_a_meaning_and_each_meaning_a_metric() -> None:
    assert {metric.name for metric in all_metrics()} == MEANINGS.keys()


def methods_on_the_page() -> list[str]:
    """The names in the second column of the table of methods."""
    rows = table_rows(REFERENCE / "kafka-consumer.md", 4)
    names = []
    for java, here, *_ in rows:
        if java != "Java" and "`" in java:
            names += [code.partition("(")[0] for code in code_in(here)] or code_in(java)
    return names


def test_each_method_of_the_consumer_is_on_its_page() -> None:
    methods = {name for name, _ in inspect.getmembers(KafkaConsumer, inspect.isfunction) if not name.startswith("_")}
    assert Counter(methods_on_the_page()) == Counter(methods)


def test_each_parameter_of_a_method_is_on_the_page_with_its_default() -> None:
    for _, here, *_ in table_rows(REFERENCE / "kafka-consumer.md", 4):
        for code in code_in(here):
            name, opened, parameters = code.partition("(")
            if not opened or "…" in parameters:
                continue
            shown = [each.strip() for each in parameters.removesuffix(")").replace("()", "<>").split(",") if each]
            signature = inspect.signature(getattr(KafkaConsumer, name)).parameters.values()
            wanted = [
                each.name if each.default is each.empty else f"{each.name}={_default(each.default)}"
                for each in signature
                if each.name != "self"
            ]
            assert shown == wanted, name


def _default(value: object) -> str:
    return '""' if value == "" else repr(value).replace("()", "<>")
