"""What a worker of many tables asks of the pipeline of one topic, without Spark and brokers.

A topic that is tried again is the same driver, so that it takes no table from another one. The end
of a run is judged by the share of bad records of each topic.
"""

from threading import Event
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.command_breaker import CommandBreaker
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.many import workers
from penstock.spark.tables.many.workers import ManyFailedError, ManyTables
from tests.spark.many.test_many_definition import definition

TOPIC = "shop.a.x"


class Pipelines:
    """Stand-ins for the pipelines of the topics, and one worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[tuple[str, Owned, CommandBreaker]] = []
        self.running = MagicMock()
        self.running.commit_available.return_value = True
        pipelines = self

        class Pipeline:
            def __init__(
                self,
                one: PipelineDefinition,
                *,
                owned: Owned,
                breaker: CommandBreaker,
                **_: object,
            ) -> None:
                pipelines.given.append((one.source.topics[0], owned, breaker))

            def open(self, *_: object) -> MagicMock:
                return pipelines.running

        monkeypatch.setattr(workers, "TablePipeline", Pipeline)
        (self.worker,) = ManyTables(definition(), MagicMock(), MagicMock(), workers=1)._workers

    def run(self, *, once: bool) -> None:
        """Commit the records of a topic."""
        self.worker._accept({TOPIC: {0: 5}})
        self.worker._commit_due(MagicMock(), MagicMock(), Event(), once=once)


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    return Pipelines(monkeypatch)


def test_every_start_of_a_topic_is_one_driver(pipelines: Pipelines) -> None:
    for topic in (TOPIC, "shop.b.x", TOPIC):
        pipelines.worker._opened(topic, MagicMock())
        pipelines.worker._close(topic)
    (_, first, counted), (_, other, not_counted), (topic, again, counts) = pipelines.given
    assert topic == TOPIC
    assert again is first
    assert other.run != first.run
    assert counts is counted, "all starts of a topic count their bad records together"
    assert not_counted is not counted


def test_the_end_of_a_run_is_judged_for_each_topic(pipelines: Pipelines) -> None:
    pipelines.running.require_few_rejects.side_effect = CircuitOpenError("all of them")
    pipelines.run(once=True)
    assert pipelines.worker.problems() == {TOPIC: "all of them"}


@pytest.mark.parametrize("error", [CircuitOpenError, SparkQueryError])
def test_a_run_with_bad_records_must_not_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: type[SparkQueryError]
) -> None:
    """The command ends with exit code 7: the next run would find no new records and succeed."""

    def run(worker: Any, _halt: Event, *, once: bool) -> None:  # noqa: ANN401 - of a private class
        worker._accept({TOPIC: {0: 5}})
        worker._failed(TOPIC, error("all of them"), once=once)

    tables = ManyTables(definition(), MagicMock(), MagicMock(), workers=1)
    monkeypatch.setattr(type(tables._workers[0]), "run", run)
    expected = CircuitOpenError if error is CircuitOpenError else ManyFailedError
    with pytest.raises(expected, match="all of them") as raised:
        tables.run(Event(), once=True)
    assert type(raised.value) is expected


def test_a_run_without_end_is_not_judged_at_an_end(pipelines: Pipelines) -> None:
    pipelines.run(once=False)
    assert not pipelines.running.require_few_rejects.called
    assert not pipelines.worker.problems()
