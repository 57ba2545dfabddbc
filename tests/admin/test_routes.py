"""Every route on a running broker: in memory by default, and on both brokers over the wire.

The same requests get the same answers from Penstock and from Apache Kafka, because the application
asks both in Kafka's words. Addresses and ids are not compared; each test creates a topic.
"""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transactions.producer_transactions import ProducerTransactions
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.types import TopicPartition
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.admin.fakes import Answered, ask
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap

NUMBERS = count()
SECONDS = 30.0


class Api:
    """The application before one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def cluster(self) -> Cluster:
        return Cluster(
            parse_addresses(self._bootstrap),
            lambda address: connect(address, timeout_seconds=SECONDS),
            timeout_seconds=SECONDS,
        )

    def __call__(self, method: str, path: str, document: object = None) -> Answered:
        return ask(method, f"/api/v1{path}", make_cluster=self.cluster, document=document)

    def document(self, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401 (any JSON)
        found = self(method, path, document)
        assert found.status in (200, 201), found.text
        assert found.headers["content-type"] == "application/json"
        return found.document

    def new_topic(self, partitions: int = 1, records: int = 0) -> str:
        """A topic of its own, with so many records in its first partition."""
        name = f"orders-{next(NUMBERS)}"
        with self.cluster() as cluster:
            cluster.create_topic(calls.NewTopic(name, partitions, 1))
            if records:
                writer = TopicWriter(cluster, name, partition=0)
                for number in range(records):
                    writer.append(None, b"%d" % number)
                writer.flush()
        return name

    def open_transaction(self, topic: str, transactional_id: str) -> None:
        """Begin a transaction with one record, and leave it."""
        at = TopicPartition(topic, 0)
        with self.cluster() as cluster:
            producers = ProducerTransactions(cluster)
            opened = producers.begin(transactional_id, 60_000)
            producers.add_partitions(opened, [at])
            batch = BatchBuilder()
            batch.append(Record(offset=0, timestamp_ms=1, key=None, value=b"1", headers=()))
            data = batch.build(
                producer_id=opened.producer_id,
                producer_epoch=opened.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            (leader,) = cluster.by_leader([at])
            call = calls.send_batches(
                {at: data}, acks=-1, timeout_ms=1_000, transactional_id=transactional_id
            )
            assert cluster.at(leader, call)[at].error_code == 0


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.interop))
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as bootstrap:
        yield Api(bootstrap)


def test_a_topic_is_made_once(api: Api) -> None:
    name = f"new-{next(NUMBERS)}"
    body = {"name": name, "partitions": 2, "settings": {"retention.ms": "5000"}}
    made = api("POST", "/topics", body)
    assert made.status == 201
    assert made.headers["location"] == f"/api/v1/topics/{name}"
    summary = made.document
    assert len(summary.pop("topic_id")) == 22
    assert summary == {"name": name, "partitions": 2, "replication_factor": 1, "internal": False}
    again = api("POST", "/topics", body)
    assert again.status == 409
    assert again.document["kafka_error"] == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("body", "kafka_error"),
    [
        ({"name": ".."}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "a", "replication_factor": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "a", "settings": {"colour": "red"}}, "INVALID_CONFIG"),
    ],
)
def test_a_topic_that_cannot_be(api: Api, body: object, kafka_error: str) -> None:
    refused = api("POST", "/topics", body)
    assert refused.status == 422
    assert refused.document["kafka_error"] == kafka_error


def test_topics_page_by_page(api: Api) -> None:
    names = sorted(api.new_topic() for _ in range(3))
    first = api.document("GET", f"/topics?limit=1&after={names[0][:-1]}")
    assert len(first["topics"]) == 1
    seen = []
    after: str | None = ""
    while after is not None:
        page = api.document("GET", f"/topics?limit=2&after={after}")
        seen += [one["name"] for one in page["topics"]]
        after = page["next"]
    assert seen == sorted(seen)
    assert set(names) <= set(seen)
    assert "__consumer_offsets" not in seen


def test_a_topic_described(api: Api) -> None:
    name = api.new_topic(2, records=4)
    found = api.document("GET", f"/topics/{name}")
    first, second = found["partitions"]
    assert (first["first_offset"], first["end_offset"]) == (0, 4)
    assert (second["first_offset"], second["end_offset"]) == (0, 0)
    assert first["size_bytes"] > second["size_bytes"] == 0
    assert first["replicas"] == first["in_sync"] == [first["leader"]]
    assert api("GET", "/topics/nothing").status == 404


def test_a_topic_deleted(api: Api) -> None:
    name = api.new_topic()
    gone = api("DELETE", f"/topics/{name}")
    assert (gone.status, gone.text) == (204, "")
    assert api("DELETE", f"/topics/{name}").status == 404


def test_settings_of_a_topic(api: Api) -> None:
    name = api.new_topic()
    path = f"/topics/{name}/settings"

    def retention() -> tuple[str, str]:
        found = {one["name"]: one for one in api.document("GET", path)["settings"]}
        return found["retention.ms"]["value"], found["retention.ms"]["source"]

    assert retention()[1] == "default"
    changed = api.document("PATCH", path, {"settings": {"retention.ms": "5000"}})
    assert changed == api.document("GET", path)
    assert retention() == ("5000", "topic")
    refused = api("PATCH", path, {"settings": {"retention.ms": "soon"}})
    assert (refused.status, refused.document["kafka_error"]) == (422, "INVALID_CONFIG")
    api.document("PATCH", path, {"settings": {"retention.ms": None}})
    assert retention()[1] == "default"
    assert api("GET", "/topics/nothing/settings").status == 404


def test_more_partitions(api: Api) -> None:
    name = api.new_topic()
    assert (
        api.document("POST", f"/topics/{name}/partitions", {"partitions": 3.0})["partitions"] == 3
    )
    refused = api("POST", f"/topics/{name}/partitions", {"partitions": 2})
    assert (refused.status, refused.document["kafka_error"]) == (422, "INVALID_PARTITIONS")
    assert api("POST", "/topics/nothing/partitions", {"partitions": 2}).status == 404


def test_records_deleted(api: Api) -> None:
    name = api.new_topic(records=5)
    path = f"/topics/{name}/partitions/0/records"
    found = api.document("DELETE", f"{path}?before=2")
    assert found == {"topic": name, "partition": 0, "first_offset": 2}
    assert api.document("DELETE", f"{path}?before=-1")["first_offset"] == 5
    refused = api("DELETE", f"{path}?before=6")
    assert (refused.status, refused.document["kafka_error"]) == (422, "OFFSET_OUT_OF_RANGE")
    assert api("DELETE", path).status == 400
    assert api("DELETE", f"/topics/{name}/partitions/1/records?before=0").status == 404


def test_the_life_of_a_group(api: Api) -> None:
    topic, group = api.new_topic(records=5), f"a/b ü {next(NUMBERS)}"
    path = f"/groups/{quote(group, safe='')}"
    body = {"to": {"kind": "offset", "offset": 2}, "topics": [{"topic": topic}]}
    assert api("GET", path).status == 404
    plan = api.document("POST", f"{path}/offsets/reset", body)
    change = {
        "topic": topic,
        "partition": 0,
        "committed": None,
        "new_offset": 2,
        "remark": None,
    }
    assert plan == {"group": group, "executed": False, "offsets": [change]}
    assert api("GET", path).status == 404
    done = api.document("POST", f"{path}/offsets/reset", {**body, "execute": True})
    assert done == {"group": group, "executed": True, "offsets": [change]}
    row = {
        "topic": topic,
        "partition": 0,
        "committed": 2,
        "end_offset": 5,
        "lag": 3,
        "member": None,
    }
    assert api.document("GET", f"{path}/offsets") == {"group": group, "lag": 3, "offsets": [row]}
    detail = api.document("GET", path)
    assert (detail["state"], detail["lag"], detail["members"]) == ("Empty", 3, [])
    assert group in [one["group"] for one in api.document("GET", "/groups?limit=1000")["groups"]]
    assert api("DELETE", path).status == 204
    assert api("DELETE", path).status == 404


@pytest.mark.parametrize(
    ("to", "offset", "remark"),
    [
        ({"kind": "earliest"}, 0, None),
        ({"kind": "latest"}, 5, None),
        ({"kind": "current"}, 3, None),
        ({"kind": "offset", "offset": 9}, 5, "9 is after the end"),
        ({"kind": "timestamp", "timestamp_ms": 1}, 0, None),
        ({"kind": "shift", "by": -2}, 1, None),
        ({"kind": "shift", "by": -9}, 0, "-6 is before the first record that is kept"),
    ],
)
def test_where_offsets_can_be_set(api: Api, to: object, offset: int, remark: str | None) -> None:
    topic, group = api.new_topic(records=5), f"group-{next(NUMBERS)}"
    start = {"to": {"kind": "offset", "offset": 3}, "topics": [{"topic": topic}], "execute": True}
    api.document("POST", f"/groups/{group}/offsets/reset", start)
    (found,) = api.document("POST", f"/groups/{group}/offsets/reset", {"to": to})["offsets"]
    assert (found["committed"], found["new_offset"], found["remark"]) == (3, offset, remark)


def test_a_reset_that_cannot_be(api: Api) -> None:
    topic, group = api.new_topic(), f"group-{next(NUMBERS)}"
    path = f"/groups/{group}/offsets/reset"
    shift = {"to": {"kind": "shift", "by": 1}, "topics": [{"topic": topic}]}
    assert api("POST", path, shift).status == 422
    unknown = {"to": {"kind": "latest"}, "topics": [{"topic": "nothing"}]}
    assert api("POST", path, unknown).status == 404
    beyond = {"to": {"kind": "latest"}, "topics": [{"topic": topic, "partitions": [1]}]}
    assert api("POST", path, beyond).status == 404


def test_settings_of_a_group(api: Api) -> None:
    path = f"/groups/group-{next(NUMBERS)}/settings"
    name = "consumer.session.timeout.ms"
    assert api("PATCH", path, {"settings": {name: "50000"}}).status == 200

    def shown() -> tuple[str, str]:
        found = api.document("GET", path)["settings"]
        return next((one["value"], one["source"]) for one in found if one["name"] == name)

    deadline = time.monotonic() + 10
    while shown() != ("50000", "group"):  # Kafka answers a moment before it shows it
        assert time.monotonic() < deadline, shown()


def test_the_cluster_and_its_brokers(api: Api) -> None:
    api.new_topic(3)
    cluster = api.document("GET", "/cluster")
    (broker,) = api.document("GET", "/brokers")["brokers"]
    assert cluster["brokers"] == 1
    assert cluster["partitions"] >= 3
    assert broker["broker"] == cluster["controller"] == 1
    found = api.document("GET", "/brokers/1/settings")["settings"]
    values = {one["name"]: one["value"] for one in found}
    assert values["node.id"] == "1"
    assert api("GET", "/brokers/7/settings").status == 404


def test_a_transaction_that_hangs_and_one_that_does_not(api: Api) -> None:
    topic, transactional_id = api.new_topic(records=2), f"pay/{next(NUMBERS)}"
    api.open_transaction(topic, transactional_id)
    quoted = quote(transactional_id, safe="")
    detail = api.document("GET", f"/transactions/{quoted}")
    assert detail["state"] == "Ongoing"
    assert detail["partitions"] == [{"topic": topic, "partition": 0}]
    listed = api.document("GET", "/transactions?limit=1000")["transactions"]
    assert transactional_id in [one["transactional_id"] for one in listed]
    producers = api.document("GET", f"/topics/{topic}/partitions/0/producers")["producers"]
    assert [one["start_offset"] for one in producers if one["start_offset"] is not None] == [2]
    path = f"/topics/{topic}/partitions/0/transactions/abort"
    known = api("POST", path, {"start_offset": 2})
    assert known.status == 409
    assert transactional_id in known.document["detail"]
    aborted = api.document("POST", path, {"start_offset": 2, "force": True})
    assert aborted["producer"]["start_offset"] == 2
    assert api("POST", path, {"start_offset": 2, "force": True}).status == 404
    assert api("GET", "/transactions/nothing").status == 404
