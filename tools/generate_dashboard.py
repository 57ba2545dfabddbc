"""Writes deploy/grafana/penstock.json, the dashboard; `--check` fails when it is stale.

The panels are described here in a few words each, and laid out on Grafana's grid of 24 columns:
first the overview for the first minute, then traffic, latency, groups, disk, replication and the
process. Every query is for the brokers selected at the top of the page. tests/deploy runs all of
them.

Run from anywhere: `python tools/generate_dashboard.py [--check]`. Never edit the file; the next run
overwrites a change from Grafana.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DASHBOARD = ROOT / "deploy" / "grafana" / "penstock.json"
COLUMNS = 24
BROKERS = 'job=~"$job",instance=~"$instance"'
WAITING_APIS = "Fetch|JoinGroup|SyncGroup"
"""APIs with long requests, because their clients request the wait."""

Json = dict[str, Any]


class Query(NamedTuple):
    """One query of a panel."""

    expression: str
    legend: str = "{{instance}}"
    format: str = "time_series"


class Panel(NamedTuple):
    """One panel; unset fields have Grafana's defaults."""

    title: str
    kind: str
    queries: Sequence[Query]
    unit: str = "short"
    description: str = ""
    width: int = 8
    height: int = 8
    thresholds: Sequence[tuple[str, float | None]] = ()
    """Colour and its lowest value; the first colour is for all lower values."""
    decimals: int | None = None
    is_stacked: bool = False
    maximum: float | None = None


def stat(title: str, expression: str, unit: str, **more: Any) -> Panel:  # noqa: ANN401 (a panel's fields)
    """Return a panel with one number and its recent history."""
    return Panel(title, "stat", [Query(expression, "")], unit, width=4, height=4, **more)


def percentiles(metric: str, by: str, more: str = "") -> list[Query]:
    """Return queries of the median, the 95th and the 99th percentile of a histogram."""
    return [
        Query(
            f"histogram_quantile({quantile}, sum by ({by}) "
            f"(rate(penstock_{metric}_bucket{{{BROKERS}{more}}}[$__rate_interval])))",
            name,
        )
        for quantile, name in ((0.5, "median"), (0.95, "95 %"), (0.99, "99 %"))
    ]


def rate(metric: str, by: str = "instance", more: str = "") -> str:
    """Return the query of a counter's rate, by some labels."""
    return f"sum by ({by}) (rate({metric}{{{BROKERS}{more}}}[$__rate_interval]))"


def heat_map(metric: str, more: str = "") -> list[Query]:
    """Return the query of the number of observations in each bucket."""
    expression = (
        f"sum by (le) (increase(penstock_{metric}_bucket{{{BROKERS}{more}}}[$__rate_interval]))"
    )
    return [Query(expression, "{{le}}", "heatmap")]


GREEN, YELLOW, RED = "green", "yellow", "red"
BAD_ABOVE_ZERO = ((GREEN, None), (RED, 1.0))

OVERVIEW = [
    stat(
        "Brokers up",
        'sum(up{job=~"$job",instance=~"$instance"})',
        "short",
        thresholds=((RED, None), (GREEN, 1.0)),
        description="Brokers that Prometheus reaches.",
    ),
    stat("Connections", f"sum(penstock_connections{{{BROKERS}}})", "short"),
    stat(
        "Produced",
        f"sum(rate(penstock_appended_bytes_total{{{BROKERS}}}[$__rate_interval]))",
        "Bps",
    ),
    stat(
        "Fetched", f"sum(rate(penstock_fetched_bytes_total{{{BROKERS}}}[$__rate_interval]))", "Bps"
    ),
    stat(
        "Produce, 99 %",
        percentiles("request_duration_seconds", "le", ',api="Produce"')[2].expression,
        "s",
        thresholds=((GREEN, None), (YELLOW, 0.1), (RED, 1.0)),
        description="One of a hundred produce requests takes longer, from request to answer.",
    ),
    stat(
        "Largest lag",
        f"max(sum by (group, topic) (penstock_group_lag_records{{{BROKERS}}})) or vector(0)",
        "short",
        thresholds=((GREEN, None), (YELLOW, 10_000.0), (RED, 1_000_000.0)),
        description="Lag of the group with the highest lag.",
    ),
    stat(
        "Disk free",
        f"min(penstock_disk_free_bytes{{{BROKERS}}} / penstock_disk_total_bytes{{{BROKERS}}})",
        "percentunit",
        thresholds=((RED, None), (YELLOW, 0.1), (GREEN, 0.2)),
        description="Of the disk that has least.",
    ),
    stat(
        "Partitions offline",
        f"sum(penstock_partitions_offline{{{BROKERS}}})",
        "short",
        thresholds=BAD_ABOVE_ZERO,
    ),
    stat(
        "Errors returned",
        f"sum(rate(penstock_request_errors_total{{{BROKERS}}}[$__rate_interval])) or vector(0)",
        "ops",
        thresholds=((GREEN, None), (YELLOW, 1.0), (RED, 100.0)),
        description="Error codes in answers. Some are ordinary, such as a group that rebalances.",
    ),
    stat(
        "Event loop late by, 99 %",
        percentiles("event_loop_lag_seconds", "le")[2].expression,
        "s",
        thresholds=((GREEN, None), (YELLOW, 0.025), (RED, 0.1)),
        description="Time that each request waits before the broker reads it.",
    ),
    stat(
        "Processor",
        f"max(rate(process_cpu_seconds_total{{{BROKERS}}}[$__rate_interval]))",
        "percentunit",
        thresholds=((GREEN, None), (YELLOW, 0.8), (RED, 1.0)),
        description="Of one core; the broker's loop can use one, its threads a little more.",
    ),
    stat("Memory", f"max(process_resident_memory_bytes{{{BROKERS}}})", "bytes"),
]

TRAFFIC = [
    Panel(
        "Bytes",
        "timeseries",
        [
            Query(rate("penstock_appended_bytes_total"), "produced {{instance}}"),
            Query(rate("penstock_fetched_bytes_total"), "fetched {{instance}}"),
        ],
        "Bps",
        "Batches as they are stored, so compressed where the producer compressed them.",
        width=12,
    ),
    Panel(
        "Records produced by topic",
        "timeseries",
        [Query(f"topk(10, {rate('penstock_topic_appended_records_total', 'topic')})", "{{topic}}")],
        "ops",
        "The ten topics that get most.",
        width=12,
        is_stacked=True,
    ),
    Panel(
        "Requests by API",
        "timeseries",
        [Query(rate("penstock_requests_total", "api"), "{{api}}")],
        "reqps",
        is_stacked=True,
    ),
    Panel(
        "Errors by API and code",
        "timeseries",
        [Query(rate("penstock_request_errors_total", "api, code"), "{{api}} {{code}}")],
        "ops",
        "Errors in answers. UNKNOWN_TOPIC_OR_PARTITION and NOT_COORDINATOR are normal at a start.",
    ),
    Panel(
        "Connections",
        "timeseries",
        [
            Query(f"penstock_connections{{{BROKERS}}}", "open {{instance}}"),
            Query(rate("penstock_connections_opened_total"), "opened a second {{instance}}"),
            Query(rate("penstock_connections_closed_total"), "closed a second {{instance}}"),
            Query(rate("penstock_connections_refused_total"), "refused a second {{instance}}"),
            Query(rate("penstock_connections_timed_out_total"), "timed out a second {{instance}}"),
            Query(rate("penstock_protocol_errors_total"), "not Kafka, a second {{instance}}"),
        ],
    ),
    Panel(
        "Bytes by topic, produced",
        "timeseries",
        [Query(f"topk(10, {rate('penstock_topic_appended_bytes_total', 'topic')})", "{{topic}}")],
        "Bps",
    ),
    Panel(
        "Bytes by topic, fetched",
        "timeseries",
        [Query(f"topk(10, {rate('penstock_topic_fetched_bytes_total', 'topic')})", "{{topic}}")],
        "Bps",
    ),
    Panel(
        "On the wire",
        "timeseries",
        [
            Query(rate("penstock_received_bytes_total"), "received {{instance}}"),
            Query(rate("penstock_sent_bytes_total"), "sent {{instance}}"),
        ],
        "Bps",
        "All bytes, also of requests without records.",
    ),
]

LATENCY = [
    Panel(
        "Produce",
        "timeseries",
        percentiles("request_duration_seconds", "le", ',api="Produce"'),
        "s",
        "From the whole request to its answer at the socket; with acks 1 or all, a sync is in it.",
    ),
    Panel(
        "Produce, all of them",
        "heatmap",
        heat_map("request_duration_seconds", ',api="Produce"'),
        "s",
        "Each column is a moment; the brighter a cell, the more requests took that long.",
        width=16,
    ),
    Panel(
        "99 % by API",
        "timeseries",
        [
            Query(
                "histogram_quantile(0.99, sum by (le, api) (rate("
                f'penstock_request_duration_seconds_bucket{{{BROKERS},api!~"{WAITING_APIS}"}}'
                "[$__rate_interval])))",
                "{{api}}",
            )
        ],
        "s",
        "Without APIs that wait by design: Fetch, JoinGroup and SyncGroup.",
    ),
    Panel(
        "Who uses the event loop",
        "timeseries",
        [Query(rate("penstock_request_handling_seconds_total", "api"), "{{api}}")],
        "percentunit",
        "Share of the loop's time by API. At 100 % the broker is at its limit.",
        is_stacked=True,
    ),
    Panel(
        "Event loop late by",
        "timeseries",
        percentiles("event_loop_lag_seconds", "le"),
        "s",
        "Time that each request waits before the broker reads it.",
    ),
    Panel(
        "Fetch, as clients asked for it",
        "heatmap",
        heat_map("request_duration_seconds", ',api="Fetch"'),
        "s",
        "A bright line at fetch.max.wait.ms is consumers that have read everything.",
        width=16,
    ),
    Panel(
        "Requests that wait",
        "timeseries",
        [Query(f"penstock_parked_requests{{{BROKERS}}}")],
        description="For records, for a sync or for their time.",
    ),
]

GROUPS = [
    Panel(
        "Lag by group and topic",
        "timeseries",
        [
            Query(
                f"topk(15, sum by (group, topic) (penstock_group_lag_records{{{BROKERS}}}))",
                "{{group}} on {{topic}}",
            )
        ],
        description="Records between what a group committed and the end of the log.",
        width=16,
    ),
    Panel(
        "Groups by state",
        "timeseries",
        [Query(f"sum by (type, state) (penstock_groups{{{BROKERS}}})", "{{type}} {{state}}")],
        is_stacked=True,
    ),
    Panel(
        "Lag now",
        "table",
        [
            Query(
                f"sort_desc(sum by (group, topic) (penstock_group_lag_records{{{BROKERS}}}))",
                "",
                "table",
            )
        ],
        width=16,
    ),
    Panel(
        "Transactional ids by state",
        "timeseries",
        [Query(f"sum by (state) (penstock_transactions{{{BROKERS}}})", "{{state}}")],
        description="Open transactions delay consumers with read_committed.",
        is_stacked=True,
    ),
]

DISK = [
    Panel(
        "Disk",
        "timeseries",
        [
            Query(f"penstock_disk_used_bytes{{{BROKERS}}}", "used {{instance}} {{directory}}"),
            Query(f"penstock_disk_total_bytes{{{BROKERS}}}", "size {{instance}} {{directory}}"),
        ],
        "bytes",
    ),
    Panel(
        "Largest topics",
        "timeseries",
        [Query(f"topk(10, sum by (topic) (penstock_topic_size_bytes{{{BROKERS}}}))", "{{topic}}")],
        "bytes",
        is_stacked=True,
    ),
    Panel(
        "State",
        "timeseries",
        [
            Query(f"penstock_disk_full{{{BROKERS}}}", "full {{directory}}"),
            Query(f"penstock_data_directory_offline{{{BROKERS}}}", "offline {{directory}}"),
        ],
        description="1 is yes. Full: produce is refused meanwhile. Offline: a sync failed.",
        maximum=1,
    ),
    Panel(
        "Syncs",
        "timeseries",
        percentiles("flush_duration_seconds", "le"),
        "s",
        "Duration of syncs to disk.",
    ),
    Panel(
        "Syncs, all of them",
        "heatmap",
        heat_map("flush_duration_seconds"),
        "s",
        width=8,
    ),
    Panel(
        "Synced",
        "timeseries",
        [
            Query(rate("penstock_flushed_bytes_total"), "bytes a second {{instance}}"),
        ],
        "Bps",
    ),
]

PROCESS = [
    Panel(
        "Processor",
        "timeseries",
        [Query(f"rate(process_cpu_seconds_total{{{BROKERS}}}[$__rate_interval])")],
        "percentunit",
        "Of one core.",
        width=6,
    ),
    Panel(
        "Memory",
        "timeseries",
        [
            Query(f"process_resident_memory_bytes{{{BROKERS}}}", "resident {{instance}}"),
            Query(f"penstock_request_bytes_in_flight{{{BROKERS}}}", "requests {{instance}}"),
            Query(f"penstock_unsent_answer_bytes{{{BROKERS}}}", "unsent answers {{instance}}"),
        ],
        "bytes",
        width=6,
    ),
    Panel(
        "Descriptors",
        "timeseries",
        [
            Query(f"process_open_fds{{{BROKERS}}}", "open {{instance}}"),
            Query(f"process_max_fds{{{BROKERS}}}", "allowed {{instance}}"),
        ],
        width=6,
    ),
    Panel(
        "Garbage collections",
        "timeseries",
        [Query(rate("python_gc_collections_total", "generation"), "generation {{generation}}")],
        "ops",
        width=6,
    ),
    Panel(
        "Defects and gaps",
        "timeseries",
        [
            Query(rate("penstock_handler_failures_total"), "failed requests a second {{instance}}"),
            Query(f"penstock_metric_rows_left_out{{{BROKERS}}} > 0", "cut: {{metric}}"),
        ],
        description="Worth a look: a defect of Penstock, or a metric with too many rows.",
        width=12,
        height=6,
    ),
    Panel(
        "Versions",
        "table",
        [
            Query(
                f"sum by (instance, version, python, compiled) (penstock_build_info{{{BROKERS}}})",
                "",
                "table",
            )
        ],
        width=12,
        height=6,
    ),
]

REPLICATION = [
    stat(
        "Registered brokers",
        f"max(penstock_cluster_brokers{{{BROKERS}}})",
        "short",
        description="Brokers of the cluster; one broker alone exports none of this row.",
    ),
    stat(
        "Without a leader",
        f"max(penstock_leaderless_partitions{{{BROKERS}}})",
        "short",
        thresholds=((GREEN, None), (RED, 1.0)),
        description="Partitions that clients can neither produce to nor fetch from.",
    ),
    stat(
        "Too few in sync",
        f"sum(penstock_under_min_isr_partitions{{{BROKERS}}})",
        "short",
        thresholds=((GREEN, None), (RED, 1.0)),
        description="Partitions that take no records with acks=all.",
    ),
    stat(
        "Under-replicated",
        f"sum(penstock_under_replicated_partitions{{{BROKERS}}})",
        "short",
        thresholds=((GREEN, None), (YELLOW, 1.0)),
        description="Partitions with a replica that is not in sync.",
    ),
    stat(
        "Controllers",
        f"sum(penstock_controller{{{BROKERS}}})",
        "short",
        thresholds=((RED, None), (GREEN, 1.0), (RED, 2.0)),
        description="There is one in each cluster.",
    ),
    stat(
        "Isolated",
        f"sum(penstock_isolated{{{BROKERS}}})",
        "short",
        thresholds=((GREEN, None), (RED, 1.0)),
        description="Brokers that do not reach etcd.",
    ),
    Panel(
        "Leaders by broker",
        "timeseries",
        [Query(f"penstock_leader_partitions{{{BROKERS}}}")],
        description="Partitions that each broker leads; after a restart they come back.",
    ),
    Panel(
        "In-sync replicas, changes",
        "timeseries",
        [
            Query(rate("penstock_isr_shrinks_total"), "left {{instance}}"),
            Query(rate("penstock_isr_expands_total"), "joined {{instance}}"),
        ],
        "ops",
        "Replicas that leave and join again and again cannot keep up.",
    ),
    Panel(
        "Bytes between brokers",
        "timeseries",
        [
            Query(rate("penstock_peer_sent_bytes_total"), "sent {{instance}}"),
            Query(rate("penstock_peer_received_bytes_total"), "received {{instance}}"),
        ],
        "Bps",
        "Leaders send records, followers send requests.",
    ),
    Panel(
        "Brokers noticed as gone, and refused copies",
        "timeseries",
        [
            Query(rate("penstock_crash_verdicts_total"), "gone, by {{instance}}"),
            Query(rate("penstock_replica_answers_refused_total"), "refused answers {{instance}}"),
            Query(rate("penstock_replica_cuts_refused_total"), "refused cuts {{instance}}"),
        ],
        "ops",
    ),
]

ROWS = {
    "Overview": OVERVIEW,
    "Traffic": TRAFFIC,
    "Latency": LATENCY,
    "Groups and transactions": GROUPS,
    "Disk": DISK,
    "Replication": REPLICATION,
    "Process": PROCESS,
}


def dashboard() -> Json:
    """Return the whole dashboard."""
    return {
        "uid": "penstock",
        "title": "Penstock",
        "tags": ["penstock", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": laid_out(ROWS),
    }


def _variables() -> list[Json]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        variable("job", "Job", "label_values(penstock_build_info, job)"),
        variable("instance", "Broker", 'label_values(penstock_build_info{job=~"$job"}, instance)'),
    ]


def variable(name: str, label: str, query: str) -> Json:
    """Return a choice at the top of the page."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def laid_out(rows: Mapping[str, Sequence[Panel]]) -> list[Json]:
    """Return every panel with its position: left to right, then down."""
    made: list[Json] = []
    top = 0
    for title, panels in rows.items():
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        made.append({"id": len(made) + 1, "type": "row", "title": title, "gridPos": place})
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                top, left, height = top + height, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            made.append({"id": len(made) + 1, "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return made


def _panel(panel: Panel) -> Json:
    steps = panel.thresholds or ((GREEN, None),)
    defaults: Json = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": colour, "value": value} for colour, value in steps],
        },
    }
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 25 if panel.is_stacked else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none"},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": [_target(number, query, panel) for number, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        **({"transformations": _TABLE_COLUMNS} if panel.kind == "table" else {}),
    }


_TABLE_COLUMNS = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]


def _target(number: int, query: Query, panel: Panel) -> Json:
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "format": query.format,
        "instant": panel.kind == "table",
        "range": panel.kind != "table",
    }


def _options(panel: Panel) -> Json:
    if panel.kind == "stat":
        return {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"]},
        }
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
            "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
            "cellGap": 1,
            "tooltip": {"mode": "single", "yHistogram": True},
        }
    if panel.kind == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def main(arguments: list[str]) -> int:
    """Write the dashboard, or with `--check` compare it."""
    text = json.dumps(dashboard(), indent=2) + "\n"
    if "--check" not in arguments:
        DASHBOARD.parent.mkdir(parents=True, exist_ok=True)
        DASHBOARD.write_text(text, encoding="utf-8")
        return 0
    if not DASHBOARD.exists() or DASHBOARD.read_text(encoding="utf-8") != text:
        print(f"stale: {DASHBOARD.relative_to(ROOT)}; run python tools/generate_dashboard.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
