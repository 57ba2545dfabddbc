"""`HttpParent`: a Penstock parent over HTTP, where only HTTP passes.

It makes the same decisions possible as `kafka_parent`: both are a `Parent`, and the answers are
checked in the same way. It polls its partitions in turn. A single partition is waited for at the
parent; with several the pause is here. A parent that is busy with other children names a time; the
partition is left out until then. Groups are not copied over HTTP.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from typing import Final
from urllib.parse import quote
from uuid import UUID

from penstock.client.transport.addresses import Address
from penstock.core.errors import (
    AuthenticationError,
    BrokerAnswerError,
    BrokerUnreachableError,
    MalformedResponseError,
)
from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import ParentLog
from penstock.edge.pipes.http.http_link import HttpLink, LinkAnswer
from penstock.edge.pipes.http.http_ports import (
    BYTES_MAX,
    PATH,
    TOPICS_MAX,
    WAIT_MS_MAX,
    SourcePartition,
    partition_of,
)
from penstock.edge.pipes.parent_calls import first_mark
from penstock.edge.pipes.ports import (
    CommittedOffset,
    FetchAt,
    Fetched,
    FetchLimits,
    ParentPartition,
    ParentTopic,
)
from penstock.protocol.error_codes import ErrorCode

RETRY_SECONDS_MAX: Final = 300.0
"""Of Retry-After; a longer time is cut."""
_OK, _NOTHING, _DENIED, _FORBIDDEN, _MISSING = 200, 204, 401, 403, 404
_DIVERGED, _GONE, _BUSY = 409, 410, 503


class HttpParent:
    """`edge.pipes.ports.Parent`."""

    def __init__(self, link: HttpLink, patterns: tuple[str, ...], now: Callable[[], float]) -> None:
        """`patterns` are the topics of the pipe; the parent lists no others."""
        self._link = link
        self._patterns = patterns
        self._now = now
        self._leader = Address(link.host, link.port)
        self._settings: dict[str, Mapping[str, str]] = {}
        self._busy_until: dict[TopicPartition, float] = {}

    async def topics(self, names: Collection[str] | None) -> Mapping[str, ParentTopic]:
        """Return these topics, or all that the pipe names."""
        asked = ",".join(self._patterns if names is None else names)
        answer = await self._link.get(f"{PATH}?topics={quote(asked, safe='')}")
        self._refuse(answer)
        if answer.status != _OK:
            raise self._strange(answer)
        try:
            rows = json.loads(answer.body)["topics"]
            found = {row["name"]: self._topic(row) for row in rows[:TOPICS_MAX]}
            self._settings = {
                row["name"]: {str(key): str(value) for key, value in row["settings"].items()}
                for row in rows[:TOPICS_MAX]
            }
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise self._strange(answer) from error
        return found

    def _topic(self, row: Mapping[str, object]) -> ParentTopic:
        epochs = row["leader_epochs"]
        if not isinstance(epochs, list):
            raise TypeError("leader_epochs")
        partitions = tuple(ParentPartition(self._leader, int(epoch)) for epoch in epochs)
        return ParentTopic(str(row["name"]), UUID(str(row["id"])), partitions)

    async def settings(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings that these topics override."""
        return {name: self._settings.get(name, {}) for name in names}

    async def log_ends(
        self, asked: Mapping[TopicPartition, tuple[UUID, int, int]]
    ) -> Mapping[TopicPartition, ParentLog]:
        """Return the ends of logs; asked are topic id, leader epoch, and the epoch to find."""
        found: dict[TopicPartition, ParentLog] = {}
        for at, (_, _, epoch) in asked.items():
            answer = await self._ask(at, f"epoch={epoch}&max_bytes=0")
            if answer.status == _MISSING:
                continue
            part = self._part(answer)
            found[at] = ParentLog(
                part.topic_id, part.start_offset, part.high_watermark, part.epoch_end
            )
        return found

    async def fetch(
        self,
        leader: Address,  # noqa: ARG002 (there is one)
        places: Mapping[TopicPartition, FetchAt],
        limits: FetchLimits,
    ) -> Mapping[TopicPartition, Fetched]:
        """Fetch partitions in turn; partitions without news may be absent."""
        found: dict[TopicPartition, Fetched] = {}
        left = min(limits.bytes_max, BYTES_MAX)
        wait_ms = min(limits.wait_ms, WAIT_MS_MAX) if len(places) == 1 else 0
        for at, place in places.items():
            if left <= 0 or self._now() < self._busy_until.get(at, 0.0):
                continue
            answer = await self._fetch_one(at, place, left, wait_ms)
            if answer is not None:
                found[at] = answer
                left -= len(answer.records)
        if not wait_ms and not any(one.records for one in found.values()):
            await asyncio.sleep(limits.wait_ms / 1_000)
        return found

    async def _fetch_one(
        self, at: TopicPartition, place: FetchAt, bytes_max: int, wait_ms: int
    ) -> Fetched | None:
        query = f"offset={place.offset}&epoch={place.last_epoch}&max_bytes={bytes_max}"
        answer = await self._ask(at, f"{query}&wait_ms={wait_ms}", wait_ms / 1_000)
        if answer.status == _BUSY:
            self._busy_until[at] = self._now() + _retry_after(answer)
            if wait_ms:
                await asyncio.sleep(wait_ms / 1_000)
            return None
        if answer.status == _MISSING:
            return _failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        part = self._part(answer)
        if part.topic_id != place.topic_id:
            return _failed(ErrorCode.UNKNOWN_TOPIC_ID)
        gone = answer.status == _GONE
        return Fetched(
            ErrorCode.OFFSET_OUT_OF_RANGE if gone else ErrorCode.NONE,
            part.high_watermark,
            part.start_offset,
            answer.status == _DIVERGED,
            memoryview(answer.body if answer.status == _OK else b""),
        )

    async def batch_at(
        self,
        leader: Address,  # noqa: ARG002 (there is one)
        at: TopicPartition,
        place: FetchAt,
    ) -> BatchMark | None:
        """Return the first batch that ends at or after the place."""
        answer = await self._ask(at, f"offset={place.offset}&max_bytes=1")
        if answer.status in (_DIVERGED, _GONE, _MISSING):
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            raise BrokerAnswerError(code.value, code.name, str(at))
        if self._part(answer).topic_id != place.topic_id:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            raise BrokerAnswerError(code.value, code.name, str(at))
        return first_mark(memoryview(answer.body))

    async def groups(self) -> Collection[str]:
        """Return nothing: groups are not copied over HTTP."""
        return ()

    async def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return nothing: groups are not copied over HTTP."""
        raise AssertionError(group)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    # --- Answers ---

    async def _ask(self, at: TopicPartition, query: str, wait_seconds: float = 0.0) -> LinkAnswer:
        path = f"{PATH}/{quote(at.topic, safe='')}/{at.partition}?{query}"
        answer = await self._link.get(path, wait_seconds=wait_seconds)
        self._refuse(answer)
        return answer

    def _refuse(self, answer: LinkAnswer) -> None:
        if answer.status == _DENIED:
            raise AuthenticationError(f"the parent {self._link.url} refuses the login (401)")
        if answer.status == _FORBIDDEN:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise BrokerAnswerError(code.value, code.name, self._link.url)

    def _part(self, answer: LinkAnswer) -> SourcePartition:
        part = partition_of(answer.headers)
        if part is None or answer.status not in (_OK, _NOTHING, _DIVERGED, _GONE):
            raise self._strange(answer)
        return part

    def _strange(self, answer: LinkAnswer) -> BrokerUnreachableError | MalformedResponseError:
        if answer.status >= 500:
            return BrokerUnreachableError(f"the parent {self._link.url} answers {answer.status}")
        return MalformedResponseError(
            f"{self._link.url} answers {answer.status}, and not as a Penstock broker.",
            hint="Name the HTTP port of the parent (edge.http_port) in `parent`.",
        )


def _failed(code: ErrorCode) -> Fetched:
    return Fetched(code, -1, -1, has_diverged=False, records=memoryview(b""))


def _retry_after(answer: LinkAnswer) -> float:
    text = answer.headers.get("retry-after", "")
    seconds = float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1.0
    return min(RETRY_SECONDS_MAX, max(1.0, seconds))
