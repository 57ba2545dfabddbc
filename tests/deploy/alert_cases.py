"""For each alert: series that make it fire, and series that must not, though they come near.

A series is written as promtool reads it: a selector and its values, one a minute; `0+60x30` begins
at 0 and adds 60 thirty times. The broker of these series is `instance="broker:8080"`.
"""

from typing import NamedTuple

BROKER = 'job="penstock",instance="broker:8080"'
DISK = f'{BROKER},directory="/data"'
GIGABYTE = 1_000_000_000


class Case(NamedTuple):
    """The series of one alert, each as (selector, values)."""

    fires: dict[str, str]
    stays: dict[str, str]
    minutes: int
    """When it is looked at."""


def series(name: str, labels: str = BROKER) -> str:
    return f"{name}{{{labels}}}"


def disk(free: str, is_full: int = 0) -> dict[str, str]:
    """A disk of 1 TB."""
    return {
        series("penstock_disk_free_bytes", DISK): free,
        series("penstock_disk_total_bytes", DISK): f"{1_000 * GIGABYTE}x120",
        series("penstock_disk_full", DISK): f"{is_full}x120",
    }


def buckets(name: str, labels: str, bound: str, below: int, above: int) -> dict[str, str]:
    """A histogram that gets observations each minute: some within a bound, some above it."""
    bucket = f"penstock_{name}_bucket"
    return {
        series(bucket, f'{labels},le="{bound}"'): f"0+{below}x60",
        series(bucket, f'{labels},le="30.0"'): f"0+{below + above}x60",
        series(bucket, f'{labels},le="+Inf"'): f"0+{below + above}x60",
    }


def requests(api: str, below: int, above: int) -> dict[str, str]:
    labels = f'{BROKER},api="{api}"'
    return {
        **buckets("request_duration_seconds", labels, "1.0", below, above),
        series("penstock_requests_total", labels): f"0+{below + above}x60",
    }


LAG = series("penstock_group_lag_records", f'{BROKER},group="g",topic="t",partition="0"')
REFUSED = series("penstock_connections_refused_total", f'{BROKER},reason="all"')
HELD = series("penstock_connections_refused_total", f'{BROKER},reason="quota"')
FAILED = series("penstock_handler_failures_total")
CUT = series("penstock_metric_rows_left_out", f'{BROKER},metric="group_lag_records"')
UP = series("up")
CONTROLLER = series("penstock_controller")
OTHER_CONTROLLER = series("penstock_controller", 'job="penstock",instance="other:8080"')
CUTS = series("penstock_replica_cuts_refused_total")

CASES = {
    "PenstockDown": Case({UP: "1x2 0x10"}, {UP: "1x2 0 1x10"}, 8),
    "PenstockDataDirectoryOffline": Case(
        {series("penstock_data_directory_offline", DISK): "0 1x5"},
        {series("penstock_data_directory_offline", DISK): "0x6"},
        3,
    ),
    "PenstockPartitionsOffline": Case(
        {series("penstock_partitions_offline"): "0 2x10"},
        {series("penstock_partitions_offline"): "0 2 0x10"},
        8,
    ),
    "PenstockDiskFull": Case(disk(f"{GIGABYTE}x60", 1), disk(f"{GIGABYTE}x60"), 3),
    "PenstockDiskLow": Case(disk(f"{140 * GIGABYTE}x60"), disk(f"{160 * GIGABYTE}x60"), 30),
    "PenstockDiskFilling": Case(
        disk(f"{400 * GIGABYTE}-{2 * GIGABYTE}x120"),
        disk(f"{400 * GIGABYTE}-{GIGABYTE // 2}x120"),
        100,
    ),
    "PenstockGroupLagGrowing": Case({LAG: "5000+1000x60"}, {LAG: "65000-1000x60"}, 50),
    "PenstockConnectionsRefused": Case({REFUSED: "0+6x30"}, {REFUSED: "7x30", HELD: "0+6x30"}, 20),
    "PenstockSlowFlush": Case(
        buckets("flush_duration_seconds", DISK, "0.5", 90, 10),
        buckets("flush_duration_seconds", DISK, "0.5", 1_000, 1),
        30,
    ),
    "PenstockSlowRequests": Case(
        requests("Produce", 90, 10),
        {**requests("Produce", 1_000, 1), **requests("Fetch", 0, 99)},
        30,
    ),
    "PenstockEventLoopLag": Case(
        buckets("event_loop_lag_seconds", BROKER, "0.1", 90, 10),
        buckets("event_loop_lag_seconds", BROKER, "0.1", 1_000, 1),
        30,
    ),
    "PenstockHandlerFailures": Case({FAILED: "0x5 1x20"}, {FAILED: "3x30"}, 8),
    "PenstockDescriptorsLow": Case(
        {series("process_open_fds"): "950x30", series("process_max_fds"): "1000x30"},
        {series("process_open_fds"): "850x30", series("process_max_fds"): "1000x30"},
        20,
    ),
    "PenstockMetricsCut": Case({CUT: "1x60"}, {CUT: "0x60"}, 50),
    "PenstockLeaderless": Case(
        {series("penstock_leaderless_partitions"): "0 3x10"},
        {series("penstock_leaderless_partitions"): "0 3 0x10"},
        8,
    ),
    "PenstockUnderMinIsr": Case(
        {series("penstock_under_min_isr_partitions"): "0 3x10"},
        {series("penstock_under_min_isr_partitions"): "0 3 0x10"},
        8,
    ),
    "PenstockIsolated": Case(
        {series("penstock_isolated"): "0 1x10"}, {series("penstock_isolated"): "0 1 0x10"}, 8
    ),
    "PenstockNoController": Case(
        {CONTROLLER: "1 0x10", OTHER_CONTROLLER: "0x11"},
        {CONTROLLER: "1 0x10", OTHER_CONTROLLER: "0 1x10"},
        8,
    ),
    "PenstockUnderReplicated": Case(
        {series("penstock_under_replicated_partitions"): "2x30"},
        {series("penstock_under_replicated_partitions"): "2x10 0x20"},
        25,
    ),
    "PenstockReplicaCutsRefused": Case({CUTS: "0x5 1x20"}, {CUTS: "3x30"}, 8),
}
