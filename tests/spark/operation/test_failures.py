"""Which failures of a pipeline may pass, by the real classes of its errors."""

import pytest

from penstock.core.errors import (
    AuthenticationError,
    BrokerAnswerError,
    BrokerUnreachableError,
)
from penstock.spark.errors import DataLossError, SubscriptionError
from penstock.spark.pipeline_runs import SparkFailedError
from penstock.spark.session import SessionFailedError
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.definition.errors import DefinitionError, as_written
from penstock.spark.tables.formats.catalog_problems import CatalogError
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    TableMovedError,
    TableRefusedError,
    TableReplacedError,
)
from penstock.spark.tables.formats.secrets import SecretFileError
from penstock.spark.tables.operation.failures import MAY_PASS, WORDS, failure_of
from penstock.spark.tables.rules.expectations import ExpectationFailedError
from penstock.spark.tables.run.batches import CommitConflictError
from penstock.spark.tables.run.stream_query import PipelineStoppedError
from penstock.spark.tables.values.registry import RegistryError

PASSING = [
    (BrokerUnreachableError("no broker"), "brokers"),
    (BrokerAnswerError(5, "LEADER_NOT_AVAILABLE", ""), "brokers"),
    (CatalogError("", "table.catalog.uri", "away.", "Start it."), "storage"),
    (ConnectionResetError("peer"), "storage"),
    (OSError("disk"), "storage"),
    (CommitConflictError("moved"), "conflict"),
    (TableMovedError("moved"), "conflict"),
    (AnswerLostError("lost"), "conflict"),
    (CommitStoppedError(StopReason.BUSY, "busy"), "conflict"),
    (PipelineStoppedError("pipeline 'orders' stopped: Job aborted"), "spark"),
    (SparkFailedError("pipeline 'orders' failed: Connection refused"), "spark"),
    (SessionFailedError("no Java"), "spark"),
    (RegistryError("500"), "registry"),
    (PipelineStoppedError("pipeline 'o' stopped: BrokerUnreachableError: no broker"), "brokers"),
]
LASTING = [
    (DefinitionError("", "value.schema", "wrong.", "Correct it."), "definition"),
    (SubscriptionError("subscribe", "no topic.", "Create it."), "definition"),
    (AuthenticationError("login failed"), "access"),
    (BrokerAnswerError(29, "TOPIC_AUTHORIZATION_FAILED", ""), "access"),
    (CommitStoppedError(StopReason.FENCED, "another driver"), "replaced"),
    (CommitStoppedError(StopReason.FORGOTTEN, "forgotten"), "replaced"),
    (CommitStoppedError(StopReason.RECREATED_TOPIC, "recreated"), "offsets"),
    (CommitStoppedError(StopReason.GAP, "gap"), "offsets"),
    (CommitStoppedError(StopReason.WENT_BACK, "rolled back"), "table"),
    (DataLossError("gone"), "offsets"),
    (TableRefusedError("needs a feature"), "table"),
    (TableReplacedError("shop.orders"), "table"),
    (CircuitOpenError("half of them"), "data"),
    (ExpectationFailedError("broken"), "data"),
    (AssertionError("broken invariant"), "bug"),
    (KeyError("x"), "bug"),
    (PipelineStoppedError("pipeline 'o' stopped: CommitStoppedError: recreated"), "offsets"),
    (PipelineStoppedError("pipeline 'o' stopped: DataLossError: records are gone"), "offsets"),
]


@pytest.mark.parametrize(("error", "word"), PASSING, ids=lambda one: str(one)[:30])
def test_brokers_stores_conflicts_and_spark_may_pass(error: Exception, word: str) -> None:
    found = failure_of(error)
    assert (found.word, found.may_pass, found.text) == (word, True, str(error))


@pytest.mark.parametrize(("error", "word"), LASTING, ids=lambda one: str(one)[:30])
def test_what_a_person_must_correct_cannot_pass(error: Exception, word: str) -> None:
    found = failure_of(error)
    assert (found.word, found.may_pass) == (word, False)


def test_every_stop_but_a_busy_table_is_for_a_person() -> None:
    passing = {one for one in StopReason if failure_of(CommitStoppedError(one, "text")).may_pass}
    assert passing == {StopReason.BUSY}


def test_every_word_is_a_series() -> None:
    assert set(WORDS) >= MAY_PASS
    assert {word for _, word in (*PASSING, *LASTING)} == set(WORDS)


def test_errors_keep_their_class_in_the_words_of_a_definition() -> None:
    """Otherwise a catalog that is unreachable at a restart ends the pipeline."""
    error = CatalogError("", "table.catalog.uri", "it refuses.", "Start it.")
    assert failure_of(as_written(error, "orders.toml")).word == "storage"
    missing = SecretFileError("", "table.catalog.token", "it is gone.", "Create it.")
    assert failure_of(as_written(missing, "orders.toml")).may_pass
