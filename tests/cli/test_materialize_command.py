"""`penstock materialize`: options, variables in their place, and the command as a process."""

import json
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.calls import NewTopic
from penstock.client.records.topic_writer import TopicWriter
from penstock.testing import Broker
from tests.cli.conftest import Penstock
from tests.materialize.topic_model import cluster_at, environment


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running, cluster_at(running.bootstrap_server) as cluster:
        cluster.create_topic(NewTopic("price", 1, 1))
        writer = TopicWriter(cluster, "price")
        writer.append(b"a-1", b'{"sku": "a-1", "price": 5}')
        writer.append(b"a-2", b'{"sku": "a-2", "price": 7}')
        writer.flush()
        yield running


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The store is in the present folder without --store.
    monkeypatch.chdir(tmp_path)
    for name in (
        *("CONSUMER_TYPE", "CONSUMER_TOPIC", "CONSUMER_GROUP", "CONSUMER_PORT"),
        *("BROKER_HOST", "BROKER_PORT", "STORAGE_DATA_DIR"),
    ):
        monkeypatch.delenv(name, raising=False)


def rows(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT key, sku FROM price ORDER BY key").fetchall()
    connection.close()
    return found


def test_once_loads_the_topic(penstock: Penstock, broker: Broker, tmp_path: Path) -> None:
    words = ("materialize", "price", "--bootstrap", broker.bootstrap_server)
    done = penstock(*words, "--store", str(tmp_path), "--index", "$.sku", "--once")
    assert done == (0, "", "")
    assert rows(tmp_path / "materialized.sqlite") == [("a-1", "a-1"), ("a-2", "a-2")]


def test_variables_in_place_of_options(
    penstock: Penstock, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = broker.bootstrap_server.rsplit(":", 1)
    for name, value in (
        *(("CONSUMER_TOPIC", " price, "), ("CONSUMER_TYPE", "shop"), ("CONSUMER_GROUP", "edge")),
        *(("BROKER_HOST", host), ("BROKER_PORT", port), ("STORAGE_DATA_DIR", str(tmp_path))),
    ):
        monkeypatch.setenv(name, value)
    assert penstock("materialize", "--once", "--index", "$.sku").code == 0
    assert len(rows(tmp_path / "shop.sqlite")) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no topic was given"),
        (("a b",), "'a b' is not a valid topic name"),
        (("price", "--index", "sku"), "is not an index"),
        (("price", "--name", "../x"), "is not a file name"),
        (("price", "--host", "0.0.0.0"), "is not a loopback address, and there is no token"),
        (("price", "--tls-key", __file__), "belong together"),
        (("price", "--bootstrap", "x:y", "--once"), "--bootstrap"),
    ],
)
def test_wrong_usage(
    penstock: Penstock, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = penstock("materialize", *words, "--store", str(tmp_path))
    assert done.code == 2
    assert message in done.errors


def test_errors_name_a_remedy(penstock: Penstock, broker: Broker, tmp_path: Path) -> None:
    words = ("materialize", "--bootstrap", broker.bootstrap_server, "--store", str(tmp_path))
    missing = penstock(*words, "prices", "--once")
    assert missing.code != 0
    assert "topic 'prices' not found" in missing.errors
    short = tmp_path / "token"
    short.write_text("short")
    refused = penstock(*words, "price", "--token-file", str(short))
    assert "openssl rand" in refused.errors
    other = tmp_path / "theirs.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE x (y)")
    connection.close()
    foreign = penstock(*words, "price", "--name", "theirs", "--once")
    assert "is a SQLite file of another program" in foreign.errors
    gone = penstock("materialize", "price", "--bootstrap", "127.0.0.1:1", "--once")
    assert "127.0.0.1:1" in gone.errors


@pytest.mark.slow
def test_the_process_serves_and_stops_in_order(broker: Broker, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "penstock", "materialize", "price", "--port", "0"),
            *("--bootstrap", broker.bootstrap_server, "--store", str(tmp_path)),
        ],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Serving price from"), process.communicate()[1]
        address = line.split(" at ")[1].strip()
        with urllib.request.urlopen(f"{address}/price/a-1?at_least=0:1", timeout=10) as answer:
            assert json.load(answer)["value"] == {"sku": "a-1", "price": 5}
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()
