"""Spark's reports are read from recorded documents; others lack offsets, and never raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.progress.reading import lag_by_topic, positions_of, read_progress
from tests.spark.progress.documents import progress, recorded, source


def test_penstock_source() -> None:
    found = read_progress(recorded("penstock_source")[1])
    assert (found.name, found.batch_id, found.row_count) == ("orders to noop", 1, 20)
    assert (found.rows_per_second, found.duration_ms) == (16.2, 1_233)
    assert positions_of(found) == {TopicPartition("orders", 0): 24, TopicPartition("orders", 1): 16}
    assert lag_by_topic(found) == {"orders": 6 + 4}
    (one,) = found.sources
    assert one.cluster_id == "7-KINOJzQ2G21QSdn2nDxw"
    assert (one.group_prefix, one.reports_group) == ("etl", True)


def test_a_batch_that_spark_repeats_after_a_restart_has_no_ends() -> None:
    found = read_progress(recorded("penstock_source")[3])
    assert positions_of(found)[TopicPartition("orders", 0)] == 50
    assert lag_by_topic(found) == {"orders": None}
    assert not found.sources[0].reports_group


def test_kafka_source() -> None:
    lags, positions = [], []
    for document in recorded("kafka_source"):
        found = read_progress(document)
        assert found.sources[0].cluster_id is None
        lags.append(lag_by_topic(found)["clicks"])
        positions.append(positions_of(found)[TopicPartition("clicks", 0)])
    assert positions == [30, 60, 90, 100, 130, 150]
    assert lags == [70, 40, 10, 0, 20, 0]  # as Spark's own metric avgOffsetsBehindLatest


def test_a_source_that_reads_no_topics() -> None:
    found = read_progress(recorded("rate_source")[1])
    assert found.row_count == 1
    assert found.sources == ()
    assert lag_by_topic(found) == {}


def test_what_a_source_says_of_its_group_and_of_lost_records() -> None:
    document = recorded("penstock_source")[1]
    latest = document["sources"][0]["latestOffset"]
    latest["skipped"] = {"records": 12, "partitions": 1}
    (found,) = read_progress(document).sources
    assert (found.group_id, found.group_prefix) == (None, "etl")
    assert (found.skipped_offset_count, found.skipped_partition_count) == (12, 1)
    latest["group"] = {"id": "billing"}
    (found,) = read_progress(document).sources
    assert (found.group_id, found.group_prefix) == ("billing", None)


def test_lag_is_unknown_without_an_end_and_never_below_zero() -> None:
    told = source({("a", 0): 10, ("a", 1): 5}, {("a", 0): 12, ("a", 1): 4})
    untold = source({("b", 0): 10, ("b", 1): 10}, {("b", 0): 12})
    assert lag_by_topic(progress(told, untold)) == {"a": 2, "b": None}


def test_a_partition_that_two_sources_read_is_as_far_as_the_slower() -> None:
    both = progress(
        source({("a", 0): 10}, {("a", 0): 15}), source({("a", 0): 7, ("b", 0): 1}, {("a", 0): 15})
    )
    assert positions_of(both) == {TopicPartition("a", 0): 7, TopicPartition("b", 0): 1}
    assert lag_by_topic(both)["a"] == 5 + 8


def test_positions_of_one_cluster() -> None:
    here = source({("a", 0): 1}, cluster_id="here")
    there = source({("b", 0): 2}, cluster_id="there")
    untold = source({("c", 0): 3})
    found = positions_of(progress(here, there, untold), "here")
    assert [at.topic for at in found] == ["a", "c"]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "topics", "partitions", "offset", "cluster_id", "0", "٣"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(end=ANY_JSON, latest=ANY_JSON, description=st.sampled_from(["KafkaV2[x]", "Python", ""]))
def test_any_document_is_read(end: object, latest: object, description: str) -> None:
    document = {
        "id": "q",
        "runId": "r",
        "sources": [{"description": description, "endOffset": end, "latestOffset": latest}],
    }
    found = read_progress(document)
    for at, offset in positions_of(found).items():
        assert at.partition >= 0
        assert offset >= 0
    lag_by_topic(found)


@given(ANY_JSON)
def test_any_source_is_read(one: object) -> None:
    read_progress({"id": "q", "runId": "r", "sources": [one], "numInputRows": one})


@pytest.mark.parametrize("rate", [None, "NaN", float("nan"), float("inf")])
def test_a_rate_that_is_none_is_zero(rate: object) -> None:
    assert read_progress({"processedRowsPerSecond": rate}).rows_per_second == 0
