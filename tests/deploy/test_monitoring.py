"""Alerts and dashboard name only exported metrics, and every alert has a description.

That the alerts fire, and that Prometheus takes all of it, is in `test_prometheus`.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.admin.metrics_page import exported_name
from penstock.core.metrics import Collected
from penstock.testing import Broker
from tests.deploy.monitoring import DASHBOARD, GUIDE, alerts, guide_queries, queries
from tests.node.peers.three_brokers import ThreeBrokers
from tools.generate_dashboard import dashboard

METRIC = re.compile(r"\b(?:penstock|process|python)_[a-z_]+\b")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
FROM_PROMETHEUS = {"job", "instance", "le"}
"""Labels that Prometheus and histograms add."""


@pytest.fixture(scope="module")
def exported() -> dict[str, tuple[str, ...]]:
    """The labels of every series that a broker can export, by its name."""
    with Broker() as broker:
        metrics = [*broker.collect_metrics(), *metrics_of_a_cluster()]
    found = {}
    for metric in metrics:
        name = exported_name(metric.name)
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found.update({name + ending: metric.label_names for ending in endings})
    return found


def metrics_of_a_cluster() -> list[Collected]:
    """The metrics of a broker that is one of several."""

    async def collect() -> list[Collected]:
        brokers = ThreeBrokers()
        await brokers.start_one(1)
        metrics = brokers.servers[1].collect_metrics()
        await brokers.stop_all()
        return metrics

    return asyncio.run(collect())


def expressions() -> Iterator[tuple[str, str]]:
    for alert in alerts():
        yield alert["alert"], alert["expr"]
    yield from queries()
    for expression in guide_queries():
        yield "guide", expression


@pytest.mark.parametrize(("where", "expression"), [*expressions()])
def test_what_is_asked_for_is_exported(
    where: str, expression: str, exported: dict[str, tuple[str, ...]]
) -> None:
    names = set(METRIC.findall(expression)) - {"penstock"}
    assert names or "up{" in expression, where
    assert names <= exported.keys()
    labels = FROM_PROMETHEUS.union(*(exported[name] for name in names))
    for grouped in GROUPED.findall(expression):
        assert set(grouped.replace(" ", "").split(",")) <= labels


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_tells_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["alert"].startswith("Penstock")
    assert alert["labels"]["severity"] in ("critical", "warning")
    words = alert["annotations"]
    assert words.keys() == {"summary", "description", "runbook"}
    assert all(len(text) > 30 for text in words.values())
    for name in METRIC.findall(words["runbook"]):
        assert name in json.dumps(dashboard()) or name in alert["expr"], name


def test_a_name_is_used_once() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names)) > 10


def test_the_guide_lists_every_alert() -> None:
    listed = re.findall(r"^\| (Penstock\w+) \| (\w+) \|", GUIDE.read_text(), re.MULTILINE)
    assert listed == [(alert["alert"], alert["labels"]["severity"]) for alert in alerts()]


# --- The dashboard ---


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def test_the_dashboard_is_what_is_told_in_the_tool() -> None:
    assert json.loads(DASHBOARD.read_text()) == json.loads(json.dumps(dashboard()))


def test_no_panel_lies_on_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


def test_every_panel_has_its_own_number_and_a_query() -> None:
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["type"] == "row" or panel["targets"], panel["title"]


def test_every_legend_has_its_label() -> None:
    for panel in panels():
        for target in panel.get("targets", ()):
            grouped = GROUPED.findall(target["expr"])
            if grouped:
                labels = set(",".join(grouped).replace(" ", "").split(","))
                wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                assert wanted <= labels, (panel["title"], target["legendFormat"])


def bare_names(text: str, exported: dict[str, tuple[str, ...]]) -> set[str]:
    """Metrics that a text names without the prefix under which Prometheus has them."""
    words = set(re.findall(r"(?<!\w)[a-z]+_[a-z_]+(?!\w)", text))
    return {word for word in words if f"penstock_{word}" in exported}


def test_alerts_tell_metrics_by_their_exported_names(exported: dict[str, tuple[str, ...]]) -> None:
    assert bare_names("see topic_size_bytes", exported) == {"topic_size_bytes"}
    for alert in alerts():
        assert bare_names(" ".join(alert["annotations"].values()), exported) == set()


def test_documents_tell_metrics_by_their_exported_names(
    exported: dict[str, tuple[str, ...]],
) -> None:
    for path in GUIDE.parents[1].rglob("*.md"):
        found = bare_names(path.read_text(), exported)
        # A gauge may be named by its quantity; a counter is always a metric.
        assert not [name for name in found if name.endswith("_total")], path.name
