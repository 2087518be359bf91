"""The files in ``monitoring/`` are those of the tables of metrics, and promtool accepts and evaluates the alerts."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.debian_packages import PROMTOOL
from tests.generate_monitoring import ALERTS, ALERTS_FILE, FILES, MONITORING, ROOT, SERIES, known
from tests.requirement_fixtures import require_program

RULE_TESTS = "zkconsumer-alerts.test.yml"
SELECTOR = re.compile(r"\b((?:zkconsumer|kafka_consumer)_\w+)")
LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")
LABEL_LISTS = re.compile(r"\b(?:by|on) \(([^)]*)\)")
MATCHERS = re.compile(r"(\w+)!?=~?\"")
SHOWN_LABELS = re.compile(r"\$labels\.(\w+)|\{\{(\w+)\}\}")


def queries() -> list[tuple[str, str]]:
    """Query and text with its labels, of all alerts, panels and variables."""
    board = json.loads((MONITORING / "zkconsumer-dashboard.json").read_text("utf-8"))
    panels = [
        (panel["targets"][0]["expr"], panel["targets"][0]["legendFormat"])
        for panel in board["panels"]
        if panel["type"] != "row"
    ]
    texts = [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    variables = [(found[1], f"{{{{{found[2]}}}}}") for found in map(LABEL_VALUES.fullmatch, texts) if found]
    assert len(variables) == len(texts) == 4
    return [(alert.expr, alert.summary) for alert in ALERTS] + panels + variables


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_up_to_date(name: str) -> None:
    wanted = FILES[name]()
    assert (MONITORING / name).read_text("utf-8") == wanted, "python tests/generate_monitoring.py --write"


@pytest.mark.parametrize(("query", "text"), queries())
def test_each_metric_and_label_is_in_the_tables(query: str, text: str) -> None:
    names = SELECTOR.findall(query)
    assert names
    labels = {label.strip() for part in LABEL_LISTS.findall(query) for label in part.split(",")}
    labels |= set(MATCHERS.findall(query)) - {"__name__"} | {a or b for a, b in SHOWN_LABELS.findall(text)}
    for name in names:
        assert labels <= SERIES[known(name)], f"{name} has not all of the labels {labels}"


def test_each_alert_has_a_page() -> None:
    for alert in ALERTS:
        assert alert.summary.endswith(".")
        assert (ROOT / "migration_docs" / "how-to" / alert.runbook).is_file(), alert.name


def test_a_name_that_is_not_in_the_tables_is_an_error() -> None:
    with pytest.raises(AssertionError, match="zkconsumer_typo is not in the tables"):
        known("zkconsumer_typo")


def test_promtool_accepts_the_rules_and_each_alert_is_tested() -> None:
    promtool = require_program(PROMTOOL)
    for words in (("check", "rules", ALERTS_FILE), ("test", "rules", RULE_TESTS)):
        done = subprocess.run([promtool, *words], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r'alertname="(\w+)"', (MONITORING / RULE_TESTS).read_text("utf-8")))
    assert tested == {alert.name for alert in ALERTS}
