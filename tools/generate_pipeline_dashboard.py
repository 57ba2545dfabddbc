"""Writes deploy/grafana/pipelines.json, the dashboard of pipelines; `--check` fails when stale.

It has the form of the brokers' dashboard (`generate_dashboard`), and panels of its own: the
overview, the lag, the rows, the commits, the tables and the driver. Every query is for the
pipelines selected at the top of the page. tests/deploy checks the names of all metrics.

Run from anywhere: `python tools/generate_pipeline_dashboard.py [--check]`. Never edit the file; the
next run overwrites a change from Grafana.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.generate_dashboard import (  # noqa: E402 - the path is set above
    GREEN,
    RED,
    YELLOW,
    Json,
    Panel,
    Query,
    laid_out,
    variable,
)

DASHBOARD = ROOT / "deploy" / "grafana" / "pipelines.json"
CHOSEN = 'job=~"$job",pipeline=~"$pipeline"'


def stat(title: str, expression: str, unit: str, **more: Any) -> Panel:  # noqa: ANN401 (a panel's fields)
    """Return a panel with one number and its recent history."""
    return Panel(title, "stat", [Query(expression, "")], unit, width=4, height=4, **more)


def lines(title: str, unit: str, *queries: Query, **more: Any) -> Panel:  # noqa: ANN401
    """Return a panel with lines over time."""
    return Panel(title, "timeseries", queries, unit, **more)


def rate(metric: str, by: str = "pipeline") -> str:
    """Return the query of a counter's rate, by some labels."""
    return f"sum by ({by}) (rate(penstock_pipeline_{metric}{{{CHOSEN}}}[$__rate_interval]))"


def gauge(metric: str, by: str = "pipeline", function: str = "max") -> str:
    """Return the query of a gauge, by some labels."""
    return f"{function} by ({by}) (penstock_pipeline_{metric}{{{CHOSEN}}})"


def percentiles(metric: str) -> list[Query]:
    """Return queries of the median, the 95th and the 99th percentile of a histogram."""
    return [
        Query(
            f"histogram_quantile({quantile}, sum by (le) "
            f"(rate(penstock_pipeline_{metric}_bucket{{{CHOSEN}}}[$__rate_interval])))",
            name,
        )
        for quantile, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    ]


PIPELINE, TOPIC = "{{pipeline}}", "{{pipeline}} {{topic}}"
ROWS: dict[str, Sequence[Panel]] = {
    "Overview": [
        stat(
            "Running",
            f"sum(penstock_pipeline_running{{{CHOSEN}}})",
            "short",
            thresholds=((RED, None), (GREEN, 1.0)),
            description="Pipelines whose query runs.",
        ),
        stat(
            "Largest lag",
            f"max(penstock_pipeline_lag_seconds{{{CHOSEN}}}) or vector(0)",
            "s",
            thresholds=((GREEN, None), (YELLOW, 120.0), (RED, 600.0)),
            description="Age of the oldest record that is not in its table.",
        ),
        stat(
            "Records behind",
            f"sum(penstock_pipeline_lag_records{{{CHOSEN}}}) or vector(0)",
            "short",
        ),
        stat(
            "Records",
            f"sum(rate(penstock_pipeline_records_total{{{CHOSEN}}}[$__rate_interval]))",
            "cps",
        ),
        stat(
            "Bad records",
            f"sum(increase(penstock_pipeline_rejects_total{{{CHOSEN}}}[1h])) or vector(0)",
            "short",
            thresholds=((GREEN, None), (YELLOW, 1.0)),
            description="Of the last hour.",
        ),
        stat(
            "Lost offsets",
            f"sum(increase(penstock_pipeline_lost_offsets_total{{{CHOSEN}}}[1d])) or vector(0)",
            "short",
            thresholds=((GREEN, None), (RED, 1.0)),
            description="Of the last day: deleted before they were read, or skipped.",
        ),
    ],
    "Lag": [
        lines("Lag in seconds", "s", Query(gauge("lag_seconds", "pipeline, topic"), TOPIC)),
        lines("Lag in records", "short", Query(gauge("lag_records", "pipeline, topic"), TOPIC)),
        lines(
            "Freshness",
            "s",
            Query(gauge("freshness_seconds"), PIPELINE),
            description="Age of the newest record of a batch when it was committed.",
        ),
    ],
    "Rows": [
        lines("Records", "cps", Query(rate("records_total"), PIPELINE)),
        lines(
            "Bad records by reason",
            "cps",
            Query(rate("rejects_total", "pipeline, reason"), "{{pipeline}} {{reason}}"),
            is_stacked=True,
        ),
        lines(
            "Expectations broken",
            "cps",
            Query(
                rate("expectation_broken_total", "pipeline, expectation"),
                "{{pipeline}} {{expectation}}",
            ),
        ),
    ],
    "Commits": [
        Panel("Commit", "timeseries", percentiles("commit_duration_seconds"), "s"),
        Panel("Whole batch", "timeseries", percentiles("batch_duration_seconds"), "s"),
        lines(
            "Batches by way",
            "ops",
            Query(rate("batches_total", "way"), "{{way}}"),
            description="driver: the shortcut for small batches; tasks; spark_sql.",
            is_stacked=True,
        ),
    ],
    "Tables": [
        lines(
            "Files",
            "short",
            Query(gauge("table_files", "pipeline, table"), "{{pipeline}} {{table}}"),
        ),
        lines(
            "Size",
            "bytes",
            Query(gauge("table_bytes", "pipeline, table"), "{{pipeline}} {{table}}"),
        ),
        lines(
            "Snapshots",
            "short",
            Query(gauge("table_snapshots", "pipeline, table"), "{{pipeline}} {{table}}"),
        ),
    ],
    "Driver": [
        lines(
            "Restarts by reason",
            "ops",
            Query(rate("restarts_total", "pipeline, reason"), "{{pipeline}} {{reason}}"),
        ),
        lines(
            "Running, and broker reachable",
            "short",
            Query(gauge("running"), "runs {{pipeline}}"),
            Query(gauge("broker_reachable"), "broker {{pipeline}}"),
            maximum=1,
        ),
        lines(
            "Failures beside the pipeline",
            "ops",
            Query(rate("maintenance_failures_total"), "maintenance {{pipeline}}"),
            Query(rate("lineage_events_dropped_total"), "lineage {{pipeline}}"),
        ),
    ],
}


def dashboard() -> Json:
    """Return the whole dashboard."""
    return {
        "uid": "penstock-pipelines",
        "title": "Penstock pipelines",
        "tags": ["penstock", "spark"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                variable("job", "Job", "label_values(penstock_pipeline_running, job)"),
                variable(
                    "pipeline",
                    "Pipeline",
                    'label_values(penstock_pipeline_running{job=~"$job"}, pipeline)',
                ),
            ]
        },
        "panels": laid_out(ROWS),
    }


def main(arguments: list[str]) -> int:
    """Write the dashboard, or with `--check` compare it."""
    text = json.dumps(dashboard(), indent=2) + "\n"
    if "--check" not in arguments:
        DASHBOARD.write_text(text, encoding="utf-8")
        return 0
    if not DASHBOARD.exists() or DASHBOARD.read_text(encoding="utf-8") != text:
        name = DASHBOARD.relative_to(ROOT)
        print(f"stale: {name}; run python tools/generate_pipeline_dashboard.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
