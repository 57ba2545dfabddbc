"""Decoders of the metadata store's values: any bytes are accepted or raise `StoreError`.

The values are our own, yet a store is shared with brokers of other versions and edited by hand.
"""

import contextlib
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import values
from penstock.cluster.image import BrokerImage, Endpoint, PartitionImage
from penstock.core.errors import StoreError
from penstock.core.types import PLAINTEXT

READERS: list[Callable[[bytes], object]] = [
    values.check_format,
    values.read_cluster_id,
    values.read_topic,
    lambda value: values.read_partition(value, 1),
    values.read_settings,
    lambda value: values.read_broker(value, 1, 1),
    values.read_next_producer_id,
]


def fuzz_store_values(data: bytes) -> None:
    """Every reader on the same bytes."""
    for read in READERS:
        with contextlib.suppress(StoreError):
            read(data)


CORPUS: dict[str, list[bytes]] = {
    "fuzz_store_values": [
        values.write_format(),
        values.write_cluster_id("cluster"),
        values.write_topic(values.TopicValue(UUID(int=7), 3)),
        values.write_partition(PartitionImage((1, 2), 1, 0, (1,), 0)),
        values.write_settings({"retention.ms": "1000"}),
        values.write_broker(
            BrokerImage(1, (Endpoint(PLAINTEXT, "localhost", 9092),), None, "directory", 0)
        ),
        values.write_next_producer_id(1_000),
    ]
}
"""Valid inputs by target."""


def test_the_corpus_is_taken() -> None:
    for data in CORPUS["fuzz_store_values"]:
        fuzz_store_values(data)
        accepted = 0
        for read in READERS:
            with contextlib.suppress(StoreError):
                read(data)
                accepted += 1
        assert accepted >= 1


@settings(deadline=None)
@given(data=st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    fuzz_store_values(data)


@pytest.mark.parametrize(
    "text",
    ["[" * 5_000, "{" + '"a":' * 3_000, '{"v":1e999}', '{"v":1,"next":1.5}', '{"v":1,"next":true}'],
    ids=["deep-array", "deep-object", "infinity", "fraction", "true"],
)
def test_odd_json(text: str) -> None:
    fuzz_store_values(text.encode())
