"""Leases over HTTP: what callers may have, what they are refused, and what a restart keeps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from penstock.core.lease_limits import LEASE_PARTITIONS_MAX, LEASE_SECONDS_MAX
from penstock.core.settings.tree import Settings
from penstock.spark.source.options import Mode, read_source_options
from penstock.testing import Broker
from tests.spark.sealed.sealed_world import admin_url, ask, plan, read, sealed_broker

TOPIC = "orders"
ID = "0123456789abcdef" * 2
PASSWORD = "correct-horse-battery"


def wish(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a request
    whole = {"partition": 0, "from_offset": 0, "until_offset": 2**63 - 1}
    return {"topic": TOPIC, "seconds": 60, "partitions": [whole], **changes}


def fill(broker: Broker) -> None:
    broker.create_topic(TOPIC, partitions=1)
    for number in range(40):
        broker.produce(TOPIC, "x" * 500 + str(number), partition=0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with sealed_broker(tmp_path_factory.mktemp("leases")) as running:
        fill(running)
        yield running


def test_a_lease_is_granted_listed_and_released(broker: Broker) -> None:
    status, found = ask(broker, "POST", document=wish())
    assert status == 201
    (partition,) = found["partitions"]
    directory = Path(found["directory"])
    assert directory.name == found["id"]
    names = {path.name for path in directory.iterdir()}
    for segment in partition["segments"]:
        stem = f"0-{segment['base_offset']:020d}"
        assert (directory / f"{stem}.log").stat().st_size == segment["size_bytes"]
        assert (f"{stem}.index" in names) == segment["has_offset_index"]
    assert partition["last_stable_offset"] == 40
    assert partition["segments"][-1]["next_offset"] < 40
    assert partition["epochs"] == [{"epoch": 0, "start_offset": 0}]
    status, listed = ask(broker, "GET")
    (entry,) = listed["leases"]
    assert (entry["id"], entry["topic"], entry["segments"]) == (
        found["id"],
        TOPIC,
        len(partition["segments"]),
    )
    assert 0 < entry["expires_at_ms"] - entry["created_at_ms"] <= 60_000
    assert ask(broker, "DELETE", f"/{found['id']}") == (204, None)
    assert not directory.parent.exists()
    assert ask(broker, "DELETE", f"/{found['id']}")[0] == 404


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seconds": 0}, 400),
        ({"seconds": LEASE_SECONDS_MAX + 1}, 400),
        ({"seconds": "60"}, 400),
        ({"topic": "../orders"}, 400),
        ({"topic": ""}, 400),
        ({"topic": "x" * 250}, 400),
        ({"topic": "missing"}, 404),
        ({"topic": "__consumer_offsets"}, 404),
        ({"partitions": []}, 400),
        ({"partitions": [{"partition": 0}]}, 400),
        ({"partitions": [{"partition": -1, "from_offset": 0, "until_offset": 1}]}, 400),
        ({"partitions": [{"partition": 2**31, "from_offset": 0, "until_offset": 1}]}, 400),
        ({"partitions": [{"partition": 0, "from_offset": -1, "until_offset": 1}]}, 400),
        ({"partitions": [{"partition": 0, "from_offset": 0, "until_offset": 2**63}]}, 400),
        ({"partitions": [{"partition": 0, "from_offset": 0, "until_offset": 9}] * 2}, 422),
        (
            {
                "partitions": [
                    {"partition": number, "from_offset": 0, "until_offset": 1}
                    for number in range(LEASE_PARTITIONS_MAX + 1)
                ]
            },
            400,
        ),
        ({"directory": "/etc"}, 400),
    ],
)
def test_hostile_requests_are_refused(
    broker: Broker, changes: dict[str, Any], expected: int
) -> None:
    status, found = ask(broker, "POST", document=wish(**changes))
    assert status == expected, found
    assert ask(broker, "GET")[1] == {"leases": []}


@pytest.mark.parametrize("lease", ["x", "..%2F..", ID.upper(), ID[:-1], ID + "0"])
def test_other_ids_are_refused(broker: Broker, lease: str) -> None:
    assert ask(broker, "DELETE", f"/{lease}")[0] == 400


def test_partitions_without_sealed_segments_are_named(broker: Broker) -> None:
    for partition, begin in ((0, 40), (9, 0)):
        wanted = [{"partition": partition, "from_offset": begin, "until_offset": 90}]
        status, found = ask(broker, "POST", document=wish(partitions=wanted))
        assert (status, found["id"], found["partitions"]) == (201, "", [])
        assert [one["partition"] for one in found["skipped"]] == [partition]
    assert ask(broker, "GET")[1] == {"leases": []}


def test_a_broker_in_memory_has_no_files_to_lease() -> None:
    settings = Settings.model_validate(
        {"node": {"storage": "memory"}, "listener": {"port": 0}, "admin": {"port": 0}}
    )
    with Broker(settings) as broker:
        broker.create_topic(TOPIC, partitions=1)
        status, found = ask(broker, "POST", document=wish())
        assert status == 422
        assert "in memory" in found["detail"]


def test_a_restart_keeps_a_lease(tmp_path: Path) -> None:
    with sealed_broker(tmp_path) as broker:
        fill(broker)
        found = ask(broker, "POST", document=wish())[1]
    with sealed_broker(tmp_path) as broker:
        assert [one["id"] for one in ask(broker, "GET")[1]["leases"]] == [found["id"]]
        assert ask(broker, "DELETE", f"/{found['id']}")[0] == 204
    assert not (tmp_path / "leases").exists()


def test_a_password_is_sent_when_the_port_asks_for_it(tmp_path: Path) -> None:
    """The query's own login is the identity at the admin port."""
    file = tmp_path / "administrator.txt"
    file.write_text(f"admin:{PASSWORD}\n")
    file.chmod(0o600)
    sections: dict[str, Any] = {
        "admin": {"auth": "basic"},
        "security": {
            "bootstrap_admin_file": str(file),
            "failed_login_delay_ms": 0,
            "authorizer": "acl",
            "super_users": "User:admin",
        },
        "listeners": (
            {
                "name": "CLIENTS",
                "port": 0,
                "protocol": "SASL_PLAINTEXT",
                "mechanisms": ("PLAIN",),
            },
        ),
    }
    with sealed_broker(tmp_path / "data", **sections) as broker:
        assert ask(broker, "POST", document=wish())[0] == 401
        assert ask(broker, "GET", user=("admin", "wrong"))[0] == 401
        assert ask(broker, "GET", user=("admin", PASSWORD)) == (200, {"leases": []})
        options = read_source_options(
            {
                "subscribe": TOPIC,
                "segments": "only",
                "segments.url": admin_url(broker),
                "kafka.bootstrap.servers": broker.bootstrap_server,
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.username": "admin",
                "kafka.sasl.password": PASSWORD,
            },
            Mode.BATCH,
        )
        created = httpx.post(
            f"{admin_url(broker)}/api/v1/topics", json={"name": TOPIC}, auth=("admin", PASSWORD)
        )
        assert created.status_code == 201
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_server,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": PASSWORD,
                "batch.num.messages": 1,
            }
        )
        for number in range(40):
            producer.produce(TOPIC, b"x" * 500 + b"%d" % number)
        assert producer.flush(30) == 0
        tasks = plan(options)
        assert any(task.sealed is not None for task in tasks)
        assert len(read(tasks, options)) == 40
