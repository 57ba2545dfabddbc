"""Pipes over HTTP: the same mirrors, and the statuses of the parent."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.client.quota_calls import change_quotas
from penstock.client.records.record_deletion import delete_before
from penstock.core.settings.edge_settings import EdgeSettings
from penstock.core.types import TopicPartition
from penstock.edge.pipes.http.http_ports import partition_of
from penstock.testing import Broker
from tests.node.gateways.gateway_stage import call, gateway_broker, run
from tests.node.gateways.test_gateway_security import GOOD, sasl_settings
from tests.node.pipes.pipe_scene import (
    TOPIC,
    Operator,
    child_settings,
    client_of,
    down_pipe,
    equal,
    stored,
    until,
)

AT = TopicPartition(TOPIC, 0)


@pytest.fixture
def parent() -> Iterator[Broker]:
    settings = child_settings([]).model_copy(update={"edge": EdgeSettings(http_port=0)})
    with Broker(settings) as running:
        running.create_topic(TOPIC, partitions=2, configs={"retention.ms": "987654321"})
        yield running


def url_of(parent: Broker) -> str:
    return f"http://127.0.0.1:{parent.http_port}"


def ask(parent: Broker, query: str, partition: int = 0, topic: str = TOPIC) -> httpx.Response:
    return httpx.get(f"{url_of(parent)}/v1/pipe/{topic}/{partition}?{query}", timeout=10)


def test_a_mirror_over_http_is_the_log_of_its_parent(parent: Broker) -> None:
    for number in range(30):
        parent.produce(TOPIC, f"value {number}", partition=number % 2)
    pipe = down_pipe(url_of(parent), transport="http", poll_interval_ms=10)
    with Broker(child_settings([pipe])) as child:
        operator = Operator(child)
        operator.wait_in_step()
        assert equal(child, parent)
        assert equal(child, parent, partition=1)
        parent.produce(TOPIC, "later", partition=1)
        until(lambda: equal(child, parent, partition=1))
        with client_of(child.bootstrap_server) as down, client_of(parent.bootstrap_server) as up:
            assert down.describe([TOPIC])[TOPIC].topic_id == up.describe([TOPIC])[TOPIC].topic_id
            settings = {one.name: one.value for one in down.topic_configs([TOPIC])[TOPIC].configs}
        assert settings["retention.ms"] == "987654321"
        assert operator.pipe()["health"] == "HEALTHY"


def test_a_gap_and_a_recreated_topic_are_found_over_http(parent: Broker) -> None:
    parent.produce(TOPIC, "1", "2", partition=0)
    pipe = down_pipe(url_of(parent), transport="http", poll_interval_ms=10, on_gap="skip")
    with Broker(child_settings([pipe])) as child:
        operator = Operator(child)
        operator.wait_in_step()
        operator.ask("POST", "/hq/pause")
        for number in range(5):
            parent.produce(TOPIC, str(number), partition=0)
        with client_of(parent.bootstrap_server) as cluster:
            delete_before(cluster, {AT: 5})
        operator.ask("POST", "/hq/resume")
        until(lambda: operator.pipe()["gap_records"] == 3)
        until(lambda: equal(child, parent))
        with client_of(parent.bootstrap_server) as cluster:
            cluster.delete_topic(TOPIC)
        parent.create_topic(TOPIC, partitions=2)
        operator.ask("POST", "/hq/pause")
        operator.ask("POST", "/hq/resume")
        until(lambda: "recreated" in str(operator.pipe()["reason"]))


def test_answers_of_the_parent(parent: Broker) -> None:
    parent.produce(TOPIC, "1", "2", partition=0)
    found = ask(parent, "offset=0&epoch=-1")
    assert (found.status_code, found.content) == (200, stored(parent.bootstrap_server))
    part = partition_of(found.headers)
    assert part is not None
    assert (part.start_offset, part.high_watermark, part.leader_epoch) == (0, 2, 0)
    assert ask(parent, "offset=2&epoch=0").status_code == 204
    assert ask(parent, "offset=2&epoch=0&wait_ms=50").status_code == 204
    assert ask(parent, "offset=0&max_bytes=0&epoch=0").headers["penstock-epoch-end"] == "0:2"
    assert ask(parent, "offset=3&epoch=0").status_code == 409
    assert ask(parent, "offset=2&epoch=7").status_code == 409
    with client_of(parent.bootstrap_server) as cluster:
        delete_before(cluster, {AT: 2})
    assert ask(parent, "offset=1&epoch=0").status_code == 410
    listed = httpx.get(f"{url_of(parent)}/v1/pipe?topics=pri*").json()["topics"]
    assert [(one["name"], one["leader_epochs"]) for one in listed] == [(TOPIC, [0, 0])]
    assert httpx.get(f"{url_of(parent)}/v1/pipe?topics=none").json() == {"topics": []}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("offset=-1", 400),
        ("offset=1&offset=2", 400),
        ("offset=99999999999999999999", 400),
        ("max_bytes=8388609", 400),
        ("wait_ms=10001", 400),
        ("epoch=x", 400),
        ("unknown=1", 400),
    ],
)
def test_a_hostile_query_is_refused(parent: Broker, query: str, status: int) -> None:
    assert ask(parent, query).status_code == status


def test_internal_and_missing_partitions_do_not_exist(parent: Broker) -> None:
    assert ask(parent, "offset=0", partition=9).status_code == 404
    assert ask(parent, "offset=0", topic="__consumer_offsets").status_code == 404
    assert ask(parent, "offset=0", topic="none").status_code == 404
    many = httpx.get(f"{url_of(parent)}/v1/pipe?topics={','.join('a' * 257)}")
    assert many.status_code == 400


def test_a_topic_that_the_user_may_not_read_does_not_exist(tmp_path: Path) -> None:
    def statuses(super_user: str) -> tuple[list[int], str]:
        more = f'authorizer = "acl"\nsuper_users = "User:{super_user}"\n'
        found: list[int] = []
        listed: list[object] = []

        async def test() -> None:
            async with gateway_broker(sasl_settings(tmp_path, more)) as broker:
                for query in ("offset=0", "offset=0&max_bytes=0", "offset=0&wait_ms=50"):
                    answer = await call(broker, "GET", f"/v1/pipe/t/0?{query}", authorization=GOOD)
                    found.append(answer.status)
                answer = await call(broker, "GET", "/v1/pipe", authorization=GOOD)
                listed.append(answer.json()["topics"])
                found.append((await call(broker, "GET", "/v1/pipe/t/0?offset=0")).status)

        run(test)
        return found, str(listed)

    found, listed = statuses("admin")
    assert (found, "'name': 't'" in listed) == ([204, 204, 204, 401], True)
    assert statuses("other") == ([404, 404, 404, 401], "[[]]")


def test_a_child_above_its_fetch_quota_comes_back_later(parent: Broker) -> None:
    for _ in range(4):
        parent.produce(TOPIC, "x" * 100_000, partition=0)
    with client_of(parent.bootstrap_server) as cluster:
        cluster.anywhere(
            change_quotas({"client-id": "penstock-pipe"}, {"consumer_byte_rate": 10_000})
        )
    first = ask(parent, "offset=0")
    assert (first.status_code, len(first.content) > 400_000) == (200, True)
    again = ask(parent, "offset=0")
    assert (again.status_code, int(again.headers["retry-after"]) > 1) == (503, True)
    assert "quota" in again.json()["detail"]
