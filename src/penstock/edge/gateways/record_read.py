"""`GET /v1/topics/{topic}/records`: records of one partition from an offset, with a long poll.

Guarantees: a consumer with `read_committed` sees the same records, in the order of the log. A read
without records is parked in the step that found none, so no append can fall in between. One
answer has at most `ANSWER_BYTES_MAX` bytes of records, or one record that is larger.
"""

import asyncio
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import Literal

from penstock.core.errors import PenstockError
from penstock.edge.gateways import web_limits as bounds
from penstock.edge.gateways.encoding_turns import EncodingTurns
from penstock.edge.gateways.gateway_bodies import pause
from penstock.edge.gateways.gateway_problems import GatewayRefusedError, problem_of
from penstock.edge.gateways.json_records import json_of
from penstock.edge.push.limits import READ_BYTES
from penstock.edge.push.ports import PushBroker, PushRefusedError
from penstock.edge.push.record_runs import Run, RunCache, is_heavy, record_run
from penstock.protocol.push.data import decode_data
from penstock.protocol.push.payloads import Refusal, SubscribeRequest

_NO_SUBSCRIPTION = b"\x00\x00"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The query of a read."""

    topic: str
    partition: int = 0
    start: int | Literal["earliest", "latest"] = "earliest"
    records_max: int = bounds.RECORDS_DEFAULT
    wait_ms: int = 0


class Reads:
    """Reads of HTTP clients; `cache` has the records that push sessions share."""

    def __init__(
        self,
        broker: PushBroker,
        cache: RunCache,
        turns: EncodingTurns,
        stopping: asyncio.Event,
    ) -> None:
        self._broker = broker
        self._turns = turns
        self._cache = cache
        self._stopping = stopping

    async def read(
        self, client: object, asked: ReadRequest, lost: asyncio.Event | None = None
    ) -> dict[str, object]:
        """Return the records as JSON; nothing waits for a client whose connection is `lost`."""
        lost = lost or asyncio.Event()
        offset = await self._start(client, asked)
        deadline = asyncio.get_running_loop().time() + asked.wait_ms / 1000
        while True:
            try:
                run = await self._run(asked, offset)
                view = self._broker.view(asked.topic, asked.partition)
            except PenstockError as error:
                raise _unreadable(error) from error
            rows, size, next_offset = await self._turns.run(
                partial(_rows, run, offset, asked.records_max)
            )
            offset = next_offset
            if rows and (wait := self._broker.charge_delivery(client, size)) > 0:
                await pause(min(wait, bounds.QUOTA_SECONDS_MAX), lost)
            if rows or not await self._wait(asked, offset, deadline, lost):
                return {
                    "topic": asked.topic,
                    "partition": asked.partition,
                    "records": rows,
                    "next_offset": next_offset,
                    "start_offset": view.start_offset,
                    "end_offset": view.end_offset,
                }
            if not self._broker.may_read(client, asked.topic):
                raise problem_of(
                    Refusal(
                        error=f"READ on the topic {asked.topic} is denied",
                        code="TOPIC_AUTHORIZATION_FAILED",
                    )
                )

    async def _start(self, client: object, asked: ReadRequest) -> int:
        """Return the first offset, after the checks of access and range."""
        start = asked.start if isinstance(asked.start, str) else {asked.partition: asked.start}
        try:
            opened = await self._broker.open(
                client, SubscribeRequest(topic=asked.topic, mode="fanout", start=start)
            )
        except PushRefusedError as error:
            raise problem_of(error.refusal) from None
        if asked.partition in opened.positions:
            return opened.positions[asked.partition]
        if asked.partition in opened.elsewhere:
            raise GatewayRefusedError(
                421,
                "Another broker",
                f"This broker does not lead {asked.topic}-{asked.partition}; broker "
                f"{opened.elsewhere[asked.partition]} does.",
                "Send the request to that broker.",
                code="NOT_LEADER_OR_FOLLOWER",
            )
        raise GatewayRefusedError(
            404,
            "Not found",
            f"{asked.topic} has {opened.partition_count} partitions, there is no partition "
            f"{asked.partition}.",
            code="UNKNOWN_TOPIC_OR_PARTITION",
        )

    async def _run(self, asked: ReadRequest, offset: int) -> Run | None:
        """Return records at or behind an offset; None at the end of the log."""
        broker, topic, partition = self._broker, asked.topic, asked.partition
        view = broker.view(topic, partition)
        if offset < view.start_offset:
            raise GatewayRefusedError(
                410,
                "Gone",
                f"Offset {offset} of {topic}-{partition} was deleted; the log starts at "
                f"{view.start_offset}.",
                "Start at another position, such as from=earliest.",
                code="OFFSET_OUT_OF_RANGE",
            )
        if offset >= view.end_offset:
            return None
        run = self._cache.find(topic, partition, offset, view.version, is_batch_format=False)
        if run is not None:
            return run
        try:
            read = broker.read(topic, partition, offset, READ_BYTES)
        except BlockingIOError:
            read = await broker.read_cold(topic, partition, offset, READ_BYTES)
        if not read.records:
            return None
        if is_heavy(read):
            run = await broker.run_heavy(lambda: record_run(read), len(read.records))
        else:
            run = record_run(read)
        self._cache.add(topic, partition, run, is_batch_format=False)
        return run

    async def _wait(
        self, asked: ReadRequest, offset: int, deadline: float, lost: asyncio.Event
    ) -> bool:
        """Wait for news; return False if the time is over. It parks before it returns control."""
        loop = asyncio.get_running_loop()
        left = deadline - loop.time()
        if left <= 0 or self._stopping.is_set() or lost.is_set():
            return False
        if offset < self._broker.view(asked.topic, asked.partition).end_offset:
            # Only records that consumers do not see were there: read on.
            return True
        news = asyncio.Event()
        cancel = self._broker.wait(asked.topic, asked.partition, news.set)
        if cancel is None and news.is_set():
            return True
        if cancel is None:
            raise GatewayRefusedError(
                503,
                "Not now",
                "The broker has no room for another waiting request.",
                "Repeat it in a moment, with a smaller wait_ms.",
                retry_after_seconds=bounds.RETRY_AFTER_SECONDS,
            )
        # A request outlives its connection: without `lost`, clients that come and go would hold
        # more waits than there are connections.
        events = [loop.create_task(one.wait()) for one in (news, self._stopping, lost)]
        try:
            await asyncio.wait(events, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancel()
            for one in events:
                one.cancel()
        return news.is_set()


def _rows(
    run: Run | None, offset: int, records_max: int
) -> tuple[list[dict[str, object]], int, int]:
    """Return records of a run as JSON, their bytes, and the offset behind them."""
    if run is None:
        return [], 0, offset
    rows: list[dict[str, object]] = []
    size = 0
    first = bisect_right(run.nexts, offset)
    for place in range(first, len(run.tails)):
        tail = run.tails[place]
        if len(rows) >= records_max or (rows and size + len(tail) > bounds.ANSWER_BYTES_MAX):
            return rows, size, run.nexts[place - 1]
        size += len(tail)
        rows.append(json_of(decode_data(_NO_SUBSCRIPTION + tail)))
    return rows, size, max(offset, run.next_offset)


def _unreadable(error: PenstockError) -> GatewayRefusedError:
    if isinstance(error, GatewayRefusedError):
        return error
    return GatewayRefusedError(
        503,
        "Not now",
        f"The partition cannot be read here now: {error}.",
        "Repeat it in a moment.",
        retry_after_seconds=bounds.RETRY_AFTER_SECONDS,
    )
