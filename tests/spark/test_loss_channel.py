"""Losses of tasks are counted on the driver, where the query's progress shows them."""

import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.transport.addresses import Address
from penstock.core.types import TopicPartition
from penstock.spark.loss import channel as loss_channel
from penstock.spark.loss.channel import LossChannel, open_loss_channel, report_to_driver
from penstock.spark.loss.data_loss import LossKind
from penstock.spark.loss.reports import REPORT_BYTES_MAX, LossReport
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.source.options import Mode
from penstock.spark.source.stream_reader import PenstockStreamReader
from penstock.spark.source.task_reader import TaskSettings, read_range
from tests.spark.source_world import Query, source_options

A = TopicPartition("orders", 0)
BROKER = Address("127.0.0.1", 9)
"""Nobody is there: the address is not spoken to, only the way to it is looked up."""


@pytest.fixture
def channel() -> Iterator[LossChannel]:
    made = LossChannel([BROKER])
    yield made
    made.close()


def report(first: int, until: int) -> LossReport:
    return LossReport(OffsetRange(A, first, until), LossKind.REMOVED, "gone", "goes on")


def read(query: Query, tasks: list[ReadTask]) -> int:
    """Run the tasks as Spark does; how many rows there were."""
    settings = TaskSettings.of(source_options(Mode.STREAM, failOnDataLoss="false"))
    with query.cluster.client() as cluster:
        return sum(
            batch.num_rows for task in tasks for batch in read_range(cluster, task, settings)
        )


# --- A query ---


def test_what_is_gone_between_plan_and_read_is_in_the_progress(
    channel: LossChannel, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(channel=channel, failOnDataLoss="false")
    query.cluster.set_topic("orders", 400, 80)
    end = query.decide()
    tasks = query.stream.plan(query.document, end)
    query.document = end
    query.cluster.set_topic("orders", 400, 80, starts={0: 400, 1: 80})
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert read(query, tasks) == 0
        caplog.clear()
        query.cluster.set_topic("orders", 410, 80)
        assert query.run() == [OffsetRange(A, 400, 410)]
    assert query.skipped() == {"records": 300 + 30, "partitions": 2}
    assert "while orders-0 was read: offset 100 of orders-0 is wanted" in caplog.text
    assert "offsets skipped: 330" in caplog.text


def test_tasks_that_run_twice_count_once(channel: LossChannel) -> None:
    query = Query(channel=channel, failOnDataLoss="false", maxRecordsPerPartition="50")
    query.cluster.set_topic("orders", 400, 50)
    end = query.decide()
    tasks = query.stream.plan(query.document, end)
    assert len(tasks) == 6
    query.cluster.set_topic("orders", 400, 50, starts={0: 400})
    assert read(query, tasks) == read(query, tasks) == 0
    assert query.skipped() == {"records": 300, "partitions": 1}
    assert query.skipped() == {"records": 300, "partitions": 1}


def test_a_deleted_topic_counts_what_was_planned(channel: LossChannel) -> None:
    query = Query(channel=channel, failOnDataLoss="false")
    query.cluster.set_topic("orders", 400, 80)
    end = query.decide()
    tasks = query.stream.plan(query.document, end)
    query.document = end
    query.cluster.delete_topic("orders")
    assert read(query, tasks) == 0
    assert query.run() == []
    assert query.skipped()["records"] == 300 + 30


def test_a_batch_that_has_ended_is_heard_before_the_next_is_planned(channel: LossChannel) -> None:
    query = Query(channel=channel, failOnDataLoss="false")
    query.cluster.set_topic("orders", 200, 50)
    first = query.decide()
    (task,) = query.stream.plan(query.document, first)
    query.document = first
    query.cluster.set_topic("orders", 300, 50)
    second = query.decide()
    assert task.losses_to is not None
    report_to_driver(task.losses_to, report(100, 120))
    query.stream.plan(first, second)
    assert query.skipped()["records"] == 20
    report_to_driver(task.losses_to, report(120, 130))
    assert query.skipped()["records"] == 20, "a task that nobody waits for any more"


# --- The channel ---


def test_strangers_are_not_counted(channel: LossChannel) -> None:
    to = channel.begin_batch()
    report_to_driver(to._replace(secret="guessed"), report(0, 10))
    with socket.create_connection((to.host, to.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with socket.create_connection((to.host, to.port)) as stranger:
        stranger.sendall(b" " * 10 * REPORT_BYTES_MAX)
    report_to_driver(to, report(0, 10))
    assert [loss.offsets for loss in channel.heard()] == [10]


def test_who_says_nothing_is_not_waited_for(
    channel: LossChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_channel, "RECEIVE_SECONDS_MAX", 0.01)
    monkeypatch.setattr(loss_channel, "TAKE_SECONDS_MAX", 0.05)
    to = channel.begin_batch()
    silent = [socket.create_connection((to.host, to.port)) for _ in range(20)]
    began = time.monotonic()
    assert channel.heard() == []
    assert time.monotonic() - began < 2, "the rest is for the next time"
    for one in silent:
        one.close()


def test_many_reports_wait_for_the_driver(channel: LossChannel) -> None:
    to = channel.begin_batch()
    for first in range(0, 1000, 10):
        report_to_driver(to, report(first, first + 5))
    assert [loss.offsets for loss in channel.heard()] == [500]


def test_a_driver_that_is_not_there_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    channel = LossChannel([BROKER])
    to = channel.begin_batch()
    channel.close()
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        report_to_driver(to, report(0, 10))
    assert f"could not be reported to the driver at 127.0.0.1:{to.port}" in caplog.text
    assert "counted in this log only" in caplog.text


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Address:
    """A name that no name server knows; none is asked."""
    resolve = socket.getaddrinfo

    def resolved(host: str, *more: Any, **named: Any) -> Any:  # noqa: ANN401 (as it is)
        if host == "nowhere":
            raise socket.gaierror("the name is not known")
        return resolve(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    return Address("nowhere", 9092)


def test_it_listens_where_brokers_are_reached_from(channel: LossChannel, nowhere: Address) -> None:
    assert channel.begin_batch().host == "127.0.0.1", "and nowhere else"
    second = LossChannel([nowhere, BROKER])
    assert second.begin_batch().host == "127.0.0.1"
    second.close()


def test_a_query_runs_without_the_channel(
    nowhere: Address, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert open_loss_channel([nowhere]) is None
    assert "counted in the logs of the executors only" in caplog.text
    query = Query(failOnDataLoss="false")
    query.cluster.set_topic("orders", 400, 50)
    (task,) = query.stream.plan(query.document, query.decide())
    assert task.losses_to is None


@pytest.mark.parametrize(("fail_on_data_loss", "listens"), [("true", False), ("false", True)])
def test_only_who_skips_losses_listens(
    fail_on_data_loss: str, listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[LossChannel] = []

    def opening(towards: tuple[Address, ...]) -> LossChannel:
        opened.append(LossChannel(towards))
        return opened[-1]

    monkeypatch.setattr("penstock.spark.source.stream_reader.open_loss_channel", opening)
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}
    reader = PenstockStreamReader({**given, "failOnDataLoss": fail_on_data_loss})
    reader._open()
    assert bool(opened) is listens
    reader.stop()
    for channel in opened:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((channel.begin_batch().host, channel.begin_batch().port))
