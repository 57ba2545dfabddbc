"""Offset documents: they survive writing and reading, equal is equal text, and damage raises."""

import json
import uuid
from contextlib import suppress
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.errors import CheckpointError
from penstock.spark.offsets import PartitionPosition, StreamOffset, read_offset, write_offset
from penstock.spark.source.subscription import topic_id_from, topic_id_text

names = st.text(st.sampled_from("abz-_.0"), min_size=1, max_size=8)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))
numbers = st.integers(0, 2**63 - 1)
positions = st.dictionaries(
    partitions, st.builds(PartitionPosition, numbers, st.integers(-1, 2**31 - 1)), max_size=8
)


@st.composite
def stream_offsets(draw: st.DrawFn) -> StreamOffset:
    found = draw(positions)
    topics = sorted({at.topic for at in found})
    ids = {name: draw(st.text("abc", min_size=1)) for name in topics if draw(st.booleans())}
    begins = {at: draw(numbers) for at in found if draw(st.booleans())}
    cluster_id = draw(st.none() | st.text("xyz", min_size=1))
    return StreamOffset(found, ids, cluster_id, begins, draw(st.booleans()))


@given(stream_offsets())
def test_a_document_says_what_it_was_made_of(offset: StreamOffset) -> None:
    text = json.dumps(write_offset(offset))
    assert read_offset(json.loads(text)) == offset


@given(stream_offsets(), st.randoms(use_true_random=False))
def test_equal_offsets_are_equal_text(offset: StreamOffset, random: Random) -> None:
    shuffled = list(offset.positions.items())
    random.shuffle(shuffled)
    other = StreamOffset(
        dict(shuffled), offset.topic_ids, offset.cluster_id, offset.begins, offset.is_initial
    )
    assert json.dumps(write_offset(other)) == json.dumps(write_offset(offset))


def test_a_checkpoint_of_sparks_own_source_is_understood() -> None:
    found = read_offset({"orders": {"0": 23, "1": 0}, "version": {"0": 5}})
    assert found == StreamOffset(
        {
            TopicPartition("orders", 0): PartitionPosition(23),
            TopicPartition("orders", 1): PartitionPosition(0),
            TopicPartition("version", 0): PartitionPosition(5),
        }
    )


def test_a_newer_document_names_the_version() -> None:
    with pytest.raises(CheckpointError, match=r"version 2.*newer Penstock"):
        read_offset({"version": 2, "anything": []})


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"orders": 5},
        {"orders": {"0": -1}},
        {"version": 1},
        {"version": 1, "topics": []},
        {"version": 1, "topics": {"a": {}}},
        {"version": 1, "topics": {"a": {"partitions": {"0": 5}}}},
        {"version": 1, "topics": {"a": {"partitions": {"0": {}}}}},
        {"version": 1, "topics": {"a": {"partitions": {"0": {"offset": True}}}}},
        {"version": 1, "topics": {"a": {"partitions": {"x": {"offset": 1}}}}},
        {"version": 1, "topics": {"a": {"topic_id": 5, "partitions": {}}}},
        {"version": 1, "topics": {}, "cluster_id": 7},
        {"version": 1, "topics": {}, "begins": {"a": {"0": None}}},
    ],
)
def test_damage_is_an_error_with_a_remedy(document: object) -> None:
    with pytest.raises(CheckpointError, match="new checkpoint location"):
        read_offset(cast("dict[str, object]", document))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["version", "topics", "partitions", "offset", "0", "begins", "a"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_garbage_is_read_or_refused(document: object) -> None:
    with suppress(CheckpointError):
        read_offset(cast("dict[str, object]", document))


@given(st.uuids())
def test_ids_of_topics_are_written_as_kafkas_tools_do(topic_id: uuid.UUID) -> None:
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert topic_id_from(text) == topic_id
