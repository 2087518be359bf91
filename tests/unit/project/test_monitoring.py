"""The files in ``monitoring/`` are those of the tables of metrics.  promtool accepts and evaluates the alerts, and
Grafana's own classes read the dashboard."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from typing import Any

import pytest
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

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


def unknown_to_grafana(fields: Any, known_fields: Any, path: str = "") -> list[str]:
    """The paths of what Grafana's classes have not read, or have read as something else."""
    if isinstance(fields, dict) and isinstance(known_fields, dict):
        found = [unknown_to_grafana(value, known_fields.get(key), f"{path}.{key}") for key, value in fields.items()]
    elif isinstance(fields, list) and isinstance(known_fields, list) and len(fields) == len(known_fields):
        pairs = zip(fields, known_fields, strict=True)
        found = [unknown_to_grafana(*pair, f"{path}[{number}]") for number, pair in enumerate(pairs)]
    else:
        return [] if fields == known_fields else [path]
    return [each for part in found for each in part]


def test_grafana_knows_each_field_of_the_dashboard() -> None:
    register_default_plugins()
    board = json.loads((MONITORING / "zkconsumer-dashboard.json").read_text("utf-8"))
    misspelt = copy.deepcopy(board)
    misspelt["panels"][1]["gridpos"] = misspelt["panels"][1].pop("gridPos")
    for fields, unknown in ((board, []), (misspelt, [".panels[1].gridpos"])):
        read = Dashboard.from_json(fields)
        again = json.loads(json.dumps(read.to_json(), default=lambda part: part.to_json()))
        assert unknown_to_grafana(fields, again) == unknown


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
