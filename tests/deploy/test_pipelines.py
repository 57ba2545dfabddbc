"""The shipped files for pipelines: each judged by the tool of its kind, and they fit the code."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from penstock.admin.metrics_page import exported_name
from penstock.cli.table.command import table
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.operation.operating import LIVE, METRICS, READY
from penstock.spark.tables.operation.pipeline_metrics import PipelineMetrics
from penstock.spark.tables.operation.run_state import RunState
from tests.deploy.pipeline_alerts import CASES
from tests.deploy.test_deploy import DEPLOY, KUBERNETES_VERSION, ROOT, verified
from tests.node.security.manual_clock import ManualClock
from tests.oracle.cache import tool
from tools.generate_pipeline_dashboard import DASHBOARD, dashboard

RULES = DEPLOY / "prometheus" / "pipelines.rules.yml"
GUIDE = ROOT / "docs" / "guides" / "operating-pipelines.md"
METRIC = re.compile(r"\bpenstock_[a-z_]+\b")


def objects(file: str) -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text())
    return {one["kind"]: one for one in documents}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """The names of all series of a pipeline."""
    registry = PipelineMetrics(RunState("orders", ("a", "b"), ManualClock())).registry
    found = set()
    for metric in registry.collect():
        name = exported_name(metric.name)
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {name + ending for ending in endings}
    return found


# --- systemd and Kubernetes ---


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "penstock-table@.service").read_text()
    words = re.search(r"ExecStart=(\S+) table (.+)", text)
    assert words is not None
    unit = tmp_path / "penstock-table@.service"
    unit.write_text(text.replace(words[1], shutil.which("true") or "/bin/true"))
    assert verified(unit) == ""
    unit.write_text(text.replace("KillMode=mixed", "KillMode=some"))
    assert "some" in verified(unit)
    require_arguments(words[2].replace("%i", "orders").split())


def test_kubernetes_takes_the_manifests() -> None:
    found = objects("penstock-table.yaml")
    for manifest in found.values():
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)
    spec = found["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    (container,) = spec["template"]["spec"]["containers"]
    command, *arguments = container["args"]
    assert command == "table"
    require_arguments(arguments)
    assert container["livenessProbe"]["httpGet"]["path"] == LIVE
    assert container["readinessProbe"]["httpGet"]["path"] == READY
    notes = spec["template"]["metadata"]["annotations"]
    assert notes["prometheus.io/path"] == METRICS
    (port,) = container["ports"]
    assert notes["prometheus.io/port"] == str(port["containerPort"])


def test_the_definition_of_the_config_map_is_right() -> None:
    data = objects("penstock-table.yaml")["ConfigMap"]["data"]
    definition = read_definition(tomllib.loads(data["orders.toml"]), "orders.toml")
    assert definition.pipeline.operation.metrics_port == 9464


def test_the_spark_application_runs_the_same_command() -> None:
    spec = objects("penstock-table-spark.yaml")["SparkApplication"]["spec"]
    command, *arguments = spec["arguments"]
    assert command == "table"
    require_arguments(arguments)
    place = spec["mainApplicationFile"].removeprefix("local://").split("site-packages/")[1]
    assert (ROOT / "src" / place).is_file()
    volumes = {one["name"] for one in spec["volumes"]}
    assert {one["name"] for one in spec["driver"]["volumeMounts"]} <= volumes


def require_arguments(words: list[str]) -> None:
    """Parse the words after `table` as the command does."""
    name, *rest = words
    command = table.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    context = command.make_context(name, rest)
    assert context.params["file"].endswith("orders.toml")


# --- Prometheus and Grafana ---


def test_alerts_and_dashboard_name_exported_metrics(exported: set[str]) -> None:
    texts = [json.dumps(one) for one in alerts()]
    texts.append(json.dumps(dashboard()["panels"]))
    for text in texts:
        names = set(METRIC.findall(text))
        assert names <= exported, names - exported


def test_the_dashboard_is_that_of_the_tool() -> None:
    assert json.loads(DASHBOARD.read_text()) == json.loads(json.dumps(dashboard()))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_says_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["alert"].startswith("PenstockPipeline")
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}


def test_the_guide_lists_every_alert() -> None:
    listed = re.findall(r"^\| `(Penstock\w+)` \| (\w+) \|", GUIDE.read_text(), re.MULTILINE)
    assert listed == [(alert["alert"], alert["labels"]["severity"]) for alert in alerts()]


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [tool("promtool", "install Debian's package prometheus"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.interop
def test_the_rules_are_right() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(RULES))


@pytest.mark.interop
@pytest.mark.parametrize("name", [alert["alert"] for alert in alerts()])
def test_an_alert_fires_and_stays_quiet(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    expression = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in seen.items()],
            "promql_expr_test": [
                {"expr": expression, "eval_time": f"{case.minutes}m", "exp_samples": samples}
            ],
        }
        for seen, samples in (
            (case.fires, [{"labels": "{}", "value": 1}]),
            (case.stays, []),
        )
    ]
    file = tmp_path / "test.yml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", str(file))
