"""The page of metrics: both formats, prefixes, escaping; another's reader reads it back."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from penstock.admin.metrics_page import render
from penstock.core.metrics import LEFT_OUT, Family, Registry, Row

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def registry() -> Registry:
    made = Registry()
    made.counter("requests_total", "Requests.").value += 2
    made.gauge("process_open_fds", "Open files.", lambda: 5)
    rows = [Row(('say "hi"\\\n', "0"), 3.5)]
    made.family("lag_records", Family("Lag\nof groups.", ("group", "partition"), lambda: rows))
    wait = made.histogram("wait_seconds", "Wait.", (0.001, 1))
    for value in (0.0005, 0.5, 5):
        wait.observe(value)
    made.family("empty", Family("Nothing yet.", ("topic",), list))
    return made


def test_plain_text_by_default() -> None:
    page, content_type = render(registry(), "*/*")
    (left_out_help,) = [m.help for m in registry().collect() if m.name == LEFT_OUT]
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert page.decode().splitlines() == [
        "# HELP penstock_empty Nothing yet.",
        "# TYPE penstock_empty gauge",
        "# HELP penstock_lag_records Lag\\nof groups.",
        "# TYPE penstock_lag_records gauge",
        'penstock_lag_records{group="say \\"hi\\"\\\\\\n",partition="0"} 3.5',
        f"# HELP penstock_metric_rows_left_out {left_out_help}",
        "# TYPE penstock_metric_rows_left_out gauge",
        'penstock_metric_rows_left_out{metric="empty"} 0.0',
        'penstock_metric_rows_left_out{metric="lag_records"} 0.0',
        "# HELP process_open_fds Open files.",
        "# TYPE process_open_fds gauge",
        "process_open_fds 5.0",
        "# HELP penstock_requests_total Requests.",
        "# TYPE penstock_requests_total counter",
        "penstock_requests_total 2.0",
        "# HELP penstock_wait_seconds Wait.",
        "# TYPE penstock_wait_seconds histogram",
        'penstock_wait_seconds_bucket{le="0.001"} 1.0',
        'penstock_wait_seconds_bucket{le="1.0"} 2.0',
        'penstock_wait_seconds_bucket{le="+Inf"} 3.0',
        "penstock_wait_seconds_count 3.0",
        "penstock_wait_seconds_sum 5.5005",
    ]


def test_openmetrics_for_who_asks_for_it() -> None:
    page, content_type = render(registry(), OPENMETRICS)
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert page.endswith(b"# EOF\n")


def test_both_formats_say_the_same() -> None:
    plain, _ = render(registry(), "")
    opened, _ = render(registry(), OPENMETRICS)
    read = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_plain(plain.decode())
        for sample in family.samples
    }
    read_open = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_open(opened.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
    }
    assert read == read_open
    assert read["penstock_lag_records", (("group", 'say "hi"\\\n'), ("partition", "0"))] == 3.5


def test_what_a_client_accepts_is_never_an_error() -> None:
    for accept in ("text/plain;version=x.y", "application/openmetrics-text;version=", ";;,=", ""):
        page, _ = render(registry(), accept)
        assert b"penstock_requests_total 2.0" in page
