"""Prometheus itself checks the shipped files, and scrapes a running broker.

promtool checks the rules, the settings and the page; each alert fires on its series and stays quiet
on others that come near. A real Prometheus reads a broker that was used, takes every rule, and
answers every query of the dashboard.
"""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.core.settings.config import BrokerConfig
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of
from tests.deploy.alert_cases import CASES
from tests.deploy.monitoring import CONFIGS, RULES, alerts, guide_queries, queries
from tests.oracle.cache import tool
from tests.oracle.running_broker import free_port
from tools.generate_dashboard import REPLICATION

pytestmark = pytest.mark.interop

SECONDS_MAX = 60.0
ALWAYS_EMPTY = ("> 0", "request_errors_total")
"""Queries that a broker without faults answers with nothing."""

UNUSED = ("errors", "penstock_share_")
"""Metrics that have no rows here: the broker has no errors and no share group."""


def promtool(*arguments: str, page: bytes | None = None) -> str:
    """Run promtool; what it said. It fails when promtool does."""
    done = subprocess.run(
        [tool("promtool", "install Debian's package prometheus"), *arguments],
        input=page,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


# --- promtool ---


def test_the_rules_are_right() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(RULES))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_the_settings_are_right(config: Path) -> None:
    assert "is valid prometheus config file" in promtool("check", "config", str(config))


def test_every_alert_has_its_cases() -> None:
    assert CASES.keys() == {alert["alert"] for alert in alerts()}


def fired(name: str, *, is_expected: bool) -> dict[str, Any]:
    """One test for promtool: whether an alert fires, with every label that its words use."""
    case = CASES[name]
    (alert,) = [alert for alert in alerts() if alert["alert"] == name]
    used = set(re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])))
    matchers = "".join(f',{label}!=""' for label in sorted(used))
    expression = f'count(ALERTS{{alertname="{name}",alertstate="firing"{matchers}}})'
    seen = case.fires if is_expected else case.stays
    return {
        "name": f"{name} {'fires' if is_expected else 'stays quiet'}",
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in seen.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{case.minutes}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if is_expected else [],
            }
        ],
    }


@pytest.mark.parametrize("is_expected", [True, False], ids=["fires", "stays quiet"])
@pytest.mark.parametrize("name", CASES)
def test_an_alert(name: str, is_expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [fired(name, is_expected=is_expected)],
    }
    file.write_text(yaml.safe_dump(tests))
    assert "SUCCESS" in promtool("test", "rules", str(file))


# --- A broker that is used ---


class Used:
    """A broker that is used."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.asker = Asker(broker.port)
        self.asker.create("orders", partitions=2)
        self._take_part()
        self.use()

    @property
    def port(self) -> int:
        """Its admin port."""
        assert self.broker.admin_port is not None
        return self.broker.admin_port

    def page(self) -> bytes:
        address = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(address, timeout=SECONDS_MAX) as answer:
            page: bytes = answer.read()
        return page

    def use(self) -> None:
        """Something of everything that is counted."""
        for partition in (0, 1):
            self.asker.produce("orders", batch_of(b"x" * 100), partition=partition)
        self.asker.fetch("orders", 0)

    def _take_part(self) -> None:
        """A group that has committed, and a transactional id."""
        for key, kind in (("readers", 0), ("writer", 1)):
            request = FindCoordinatorRequest(coordinator_keys=(key,), key_type=kind)
            self.asker.ask(request, 4, FindCoordinatorResponse)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topic = OffsetCommitRequestTopic(name="orders", partitions=(partition,))
        commit = OffsetCommitRequest(group_id="readers", member_id="", topics=(topic,))
        self.asker.ask(commit, 9, OffsetCommitResponse)
        init = InitProducerIdRequest(transactional_id="writer", transaction_timeout_ms=10_000)
        self.asker.ask(init, 4, InitProducerIdResponse)


@pytest.fixture(scope="module")
def used() -> Iterator[Used]:
    settings = BrokerConfig(port=0, storage="memory", admin_port=0)
    with Broker(settings) as broker:
        made = Used(broker)
        until(made.page)
        yield made
        made.asker.close()


def test_the_page_is_right(used: Used) -> None:
    page = used.page()
    assert promtool("check", "metrics", page=page) == ""


def test_a_wrong_page_is_found(used: Used) -> None:
    page = used.page()
    wrong = page.replace(
        b"TYPE penstock_requests_total counter", b"TYPE penstock_requests_total gauge"
    )
    with pytest.raises(AssertionError, match="_total"):
        promtool("check", "metrics", page=wrong)


# --- Prometheus ---


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 (whatever it answers)
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._address}/{path}?{query}", timeout=10) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, "Prometheus does not come to it"
        time.sleep(0.1)


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[Prometheus]:
    """Prometheus with the shipped settings of brokers, but for the target and the pace."""
    config = yaml.safe_load(CONFIGS[-1].read_text())
    config["scrape_configs"] = [
        job for job in config["scrape_configs"] if job["job_name"] == "penstock"
    ]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        tool("prometheus", "install Debian's package prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as running,
    ):
        try:
            yield Prometheus(port)
        finally:
            running.terminate()
            running.wait(30)


def filled(expression: str) -> str:
    """A query of the dashboard with its variables filled in."""
    for name, value in {"$job": ".*", "$instance": ".*", "$__rate_interval": "30s"}.items():
        expression = expression.replace(name, value)
    return expression


def test_prometheus_scrapes_a_broker(used: Used, tmp_path: Path) -> None:
    with prometheus(tmp_path, used.port) as running:
        until(lambda: running.query('up{job="penstock"} == 1'))

        def is_seen_twice() -> bool:
            used.use()
            return bool(running.query("rate(penstock_requests_total[30s]) > 0"))

        until(is_seen_twice)
        until(lambda: running.query("rate(penstock_flush_duration_seconds_count[30s]) > 0"))
        (active,) = running.get("targets")["activeTargets"]
        assert (active["health"], active["lastError"]) == ("up", "")
        lag = running.query('penstock_group_lag_records{group="readers",topic="orders"}')
        assert [row["metric"]["partition"] for row in lag] == ["0"]
        until(lambda: all(rule["health"] == "ok" for rule in rules(running)))
        assert [rule["name"] for rule in rules(running) if rule["state"] == "firing"] == []
        empty = [title for title, query in queries() if not running.query(filled(query))]
        expected = {
            title for title, query in queries() if any(sign in query for sign in ALWAYS_EMPTY)
        }
        # A broker alone has no replicas elsewhere.
        expected.update(panel.title for panel in REPLICATION)
        assert set(empty) <= expected
        for query in guide_queries():
            assert running.query(query) or any(name in query for name in UNUSED), query
        help_of = running.get("metadata", metric="penstock_connections")["penstock_connections"][0]
        assert help_of["type"] == "gauge"


def rules(running: Prometheus) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = running.get("rules")["groups"]
    return [rule for group in groups for rule in group["rules"]]
