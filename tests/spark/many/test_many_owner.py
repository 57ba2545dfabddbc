"""A topic that is tried again is the same driver: it takes no table from another one."""

from unittest.mock import MagicMock

import pytest

from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.many import workers
from penstock.spark.tables.many.workers import ManyTables
from tests.spark.many.test_many_definition import definition


def test_every_start_of_a_topic_is_one_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, Owned]] = []

    class Pipeline:
        def __init__(self, one: PipelineDefinition, *, owned: Owned, **_: object) -> None:
            given.append((one.source.topics[0], owned))

        def open(self, *_: object) -> MagicMock:
            return MagicMock()

    monkeypatch.setattr(workers, "TablePipeline", Pipeline)
    tables = ManyTables(definition(), MagicMock(), MagicMock(), workers=1)
    (worker,) = tables._workers
    for topic in ("shop.a.x", "shop.b.x", "shop.a.x"):
        worker._opened(topic, MagicMock())
        worker._close(topic)
    assert [topic for topic, _ in given] == ["shop.a.x", "shop.b.x", "shop.a.x"]
    (_, first), (_, other), (_, again) = given
    assert again is first
    assert other.run != first.run
