"""A request in pieces has every partition once, in order, and so has its answer."""

import itertools

import pytest

from penstock.broker.pieces import join_topics, pieces
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def topic(name: str, count: int) -> OffsetCommitRequestTopic:
    partitions = tuple(
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=0, committed_metadata=None
        )
        for index in range(count)
    )
    return OffsetCommitRequestTopic(name=name, partitions=partitions)


@pytest.mark.parametrize(
    "counts", [[], [0], [1], [10], [11], [25], [3, 3, 3, 3], [9, 2, 0, 30, 1], [1] * 25, [0] * 25]
)
def test_pieces_together_are_the_whole(counts: list[int]) -> None:
    topics = tuple(topic(f"t-{number}", count) for number, count in enumerate(counts))
    cut = list(pieces(topics, most=10))
    for piece in cut:
        assert 0 < len(piece) <= 10
        assert sum(len(one.partitions) for one in piece) <= 10
    assert join_topics(list(itertools.chain(*cut))) == topics
