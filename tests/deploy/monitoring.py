"""The shipped files for Prometheus and Grafana, as values."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "penstock.rules.yml"
CONFIGS = sorted((DEPLOY / "prometheus").glob("prometheus*.yml"))
DASHBOARD = DEPLOY / "grafana" / "penstock.json"
GUIDE = DEPLOY.parent / "docs" / "guides" / "monitoring.md"


def alerts() -> list[dict[str, Any]]:
    """Every alert."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def guide_queries() -> list[str]:
    """Every query that the guide shows."""
    return re.findall(r"```promql\n(.*?)\n```", GUIDE.read_text(), re.DOTALL)


def queries() -> Iterator[tuple[str, str]]:
    """Title and query of every panel of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
