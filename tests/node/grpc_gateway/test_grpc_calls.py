"""Produce, Fetch, GetTopicMetadata and CommitOffset of the gRPC gateway."""

import asyncio
from typing import Any

import pytest

from penstock.core.clock import SystemClock
from penstock.edge.grpc_gateway import gateway_limits
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Record
from tests.node.grpc_gateway.grpc_stage import generated, grpc_broker, grpc_stub, status_of
from tests.node.push.push_stage import run


def test_produced_records_are_fetched() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            records = [
                pb.Record(key=b"k", value=b"v", timestamp_ms=5),
                pb.Record(
                    value=b"w", headers=[pb.Header(name="h", value=b"1"), pb.Header(name="n")]
                ),
                pb.Record(key=b"k"),
            ]
            placed = await stub.Produce(pb.ProduceRequest(topic="t", records=records))
            assert list(placed.partitions) == [0, 0, 0]
            assert list(placed.offsets) == [0, 1, 2]
            found = await stub.Fetch(pb.FetchRequest(topic="t", offset=0))
            assert (found.next_offset, found.log_start_offset, found.end_offset) == (3, 0, 3)
            first, second, third = found.records
            assert (first.key, first.value, first.timestamp_ms, first.offset) == (b"k", b"v", 5, 0)
            assert not second.HasField("key")
            assert [(one.name, one.HasField("value")) for one in second.headers] == [
                ("h", True),
                ("n", False),
            ]
            assert abs(second.timestamp_ms - SystemClock().now_ms()) < 60_000
            assert not third.HasField("value")
            from_one = await stub.Fetch(pb.FetchRequest(topic="t", offset=1))
            assert [one.offset for one in from_one.records] == [1, 2]

    run(test)


def test_a_batch_is_stored_and_fetched_as_it_is() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            batch = bytes(build_batch([Record(b"k", b"%d" % i, (), 1) for i in range(5_000)]))
            placed = await stub.Produce(pb.ProduceRequest(topic="t", partition=0, batch=batch))
            assert list(placed.offsets) == [0]
            found = await stub.Fetch(pb.FetchRequest(topic="t", offset=0, as_batches=True))
            assert not found.records
            assert found.next_offset == 5_000
            assert len(list(read_records(found.batches))) == 5_000
            part = await stub.Fetch(pb.FetchRequest(topic="t", offset=10, bytes_max=1_000))
            assert part.records[0].offset == 10
            assert part.next_offset == part.records[-1].offset + 1 < 100
            most = await stub.Fetch(pb.FetchRequest(topic="t", offset=0, bytes_max=1_048_576))
            assert len(most.records) == gateway_limits.RECORDS_MAX
            damaged = batch[:-1] + b"\xff"
            call = stub.Produce(pb.ProduceRequest(topic="t", partition=0, batch=damaged))
            status, _, metadata = await status_of(call)
            assert (status, metadata["penstock-error"]) == ("INVALID_ARGUMENT", "CORRUPT_MESSAGE")

    run(test)


def test_records_go_to_the_partition_of_their_key() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker(topics={"t": 4}) as broker, grpc_stub(broker) as stub:
            records = [pb.Record(key=b"%d" % i, value=b"v") for i in range(50)]
            placed = await stub.Produce(pb.ProduceRequest(topic="t", records=records))
            assert set(placed.partitions) == {0, 1, 2, 3}
            again = await stub.Produce(pb.ProduceRequest(topic="t", records=records))
            assert list(again.partitions) == list(placed.partitions)
            named = pb.ProduceRequest(topic="t", partition=2, records=[pb.Record(value=b"x")])
            assert list((await stub.Produce(named)).partitions) == [2]
            in_turn = set()
            for _ in range(8):
                request = pb.ProduceRequest(topic="t", records=[pb.Record(value=b"x")])
                in_turn.update((await stub.Produce(request)).partitions)
            assert in_turn == {0, 1, 2, 3}

    run(test)


def test_a_fetch_waits_for_the_first_record() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            empty = await stub.Fetch(pb.FetchRequest(topic="t", offset=-1, wait_ms_max=20))
            assert (len(empty.records), empty.next_offset) == (0, 0)
            waiting = stub.Fetch(pb.FetchRequest(topic="t", offset=-1, wait_ms_max=20_000))
            assert broker._grpc is not None
            while not broker._grpc.server.admission.count:  # noqa: ASYNC110
                await asyncio.sleep(0)  # one turn
            await broker.publish("t", b"late")
            found = await waiting
            assert [one.value for one in found.records] == [b"late"]
            late = stub.Fetch(
                pb.FetchRequest(topic="t", offset=-1, wait_ms_max=20_000), timeout=0.3
            )
            assert (await status_of(late))[0] == "DEADLINE_EXCEEDED"
            soon = await stub.Fetch(pb.FetchRequest(topic="t", offset=0), timeout=5)
            assert len(soon.records) == 1
            broker._grpc.server.admission.validate()

    run(test)


def test_a_group_continues_at_its_committed_offset() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            records = [pb.Record(value=b"%d" % i) for i in range(5)]
            await stub.Produce(pb.ProduceRequest(topic="t", records=records))
            # A group without an offset is not at the end: it would skip records between two calls.
            status, message, _ = await status_of(stub.Fetch(pb.FetchRequest(topic="t", group="g")))
            assert (status, "no committed offset" in message) == ("OUT_OF_RANGE", True)
            await stub.CommitOffset(
                pb.CommitOffsetRequest(
                    group="g", topic="t", offsets=[pb.PartitionOffset(partition=0, offset=3)]
                )
            )
            found = await stub.Fetch(pb.FetchRequest(topic="t", group="g"))
            assert [one.offset for one in found.records] == [3, 4]
            start = await stub.Fetch(pb.FetchRequest(topic="t", group="g", offset=-2))
            assert start.records[0].offset == 0

    run(test)


def test_metadata_of_topics() -> None:
    async def test() -> None:
        pb = generated()
        async with grpc_broker(topics={"t": 2}) as broker, grpc_stub(broker) as stub:
            await broker.publish("t", b"v", partition=1)
            found = await stub.GetTopicMetadata(pb.GetTopicMetadataRequest(topics=["t", "none"]))
            topic, missing = found.topics
            assert (topic.name, topic.error, len(topic.id)) == ("t", "", 16)
            assert [(one.index, one.is_here, one.end_offset) for one in topic.partitions] == [
                (0, True, 0),
                (1, True, 1),
            ]
            assert (missing.name, missing.error) == ("none", "UNKNOWN_TOPIC_OR_PARTITION")

    run(test)


CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "topic": ("Fetch", {"topic": "none", "offset": 0}, "NOT_FOUND"),
    "no topic": ("Fetch", {"offset": 0}, "INVALID_ARGUMENT"),
    "partition": ("Fetch", {"topic": "t", "partition": 9, "offset": 0}, "NOT_FOUND"),
    "latest of no partition": ("Fetch", {"topic": "t", "partition": 9, "offset": -1}, "NOT_FOUND"),
    "negative partition": (
        "Fetch",
        {"topic": "t", "partition": -1, "offset": 0},
        "INVALID_ARGUMENT",
    ),
    "above the end": ("Fetch", {"topic": "t", "offset": 7}, "OUT_OF_RANGE"),
    "far below": ("Fetch", {"topic": "t", "offset": -3}, "INVALID_ARGUMENT"),
    "no position": ("Fetch", {"topic": "t"}, "INVALID_ARGUMENT"),
    "long wait": ("Fetch", {"topic": "t", "offset": 0, "wait_ms_max": 30_001}, "INVALID_ARGUMENT"),
    "large read": ("Fetch", {"topic": "t", "offset": 0, "bytes_max": 1 << 31}, "INVALID_ARGUMENT"),
    "nothing": ("Produce", {"topic": "t"}, "INVALID_ARGUMENT"),
    "batch without partition": ("Produce", {"topic": "t", "batch": b"x"}, "INVALID_ARGUMENT"),
    "not a batch": ("Produce", {"topic": "t", "partition": 0, "batch": b"x"}, "INVALID_ARGUMENT"),
    "no names": ("GetTopicMetadata", {}, "INVALID_ARGUMENT"),
    "many names": ("GetTopicMetadata", {"topics": ["t"] * 101}, "INVALID_ARGUMENT"),
    "no offsets": ("CommitOffset", {"group": "g", "topic": "t"}, "INVALID_ARGUMENT"),
    "no group": ("CommitOffset", {"topic": "t"}, "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals_have_a_status(case: str) -> None:
    method, fields, expected = CASES[case]

    async def test() -> None:
        pb = generated()
        async with grpc_broker() as broker, grpc_stub(broker) as stub:
            call = getattr(stub, method)(getattr(pb, f"{method}Request")(**fields))
            status, message, metadata = await status_of(call)
            assert status == expected
            assert message
            assert metadata["penstock-retriable"] in ("true", "false")
            assert metadata["penstock-error"]

    run(test)
