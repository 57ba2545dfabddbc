"""`POST /v1/topics/{topic}/records`: publish records, and answer when they are on disk.

`application/json` has `{"records": [...]}` with the members of `json_records`. Any other type is
the value of one record as it is, with `key`, `partition` and `timestamp` in the query. Records of
one partition become batches in their order, as those of a push session do.

A request that is not answered may have been stored: its client cannot know, and a repetition may
store its records twice.
"""

import asyncio
import json
from typing import Final

from penstock.edge.gateways import web_limits as bounds
from penstock.edge.gateways.gateway_problems import GatewayRefusedError, malformed, problem_of
from penstock.edge.gateways.json_records import GivenRecord, RecordFormError, record_of
from penstock.edge.push.ports import PushBroker, PushRefusedError
from penstock.edge.push.publishing import Outcome, publish_all
from penstock.edge.push.reactions import Published
from penstock.protocol.push.data import DATA_BYTES_MIN, DELETE, MESSAGE, PushData
from penstock.protocol.push.payloads import Refusal, SubscribeRequest

_RECORD_BYTES_MIN: Final = DATA_BYTES_MIN


def read_records(body: bytes | bytearray) -> list[GivenRecord]:
    """Return the records in a JSON body."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise malformed("The body is not JSON.") from None
    records = found.get("records") if isinstance(found, dict) and len(found) == 1 else None
    if not isinstance(records, list):
        raise malformed('The body is not an object {"records": [...]}.')
    if not 0 < len(records) <= bounds.RECORDS_PER_REQUEST_MAX:
        raise malformed(
            f"The body has {len(records)} records, at least 1 and at most "
            f"{bounds.RECORDS_PER_REQUEST_MAX} are accepted."
        )
    given = []
    for place, one in enumerate(records):
        try:
            given.append(record_of(one))
        except RecordFormError as error:
            raise malformed(f"Record {place}: {error}.") from None
    return given


class _Collected:
    """`edge.push.publishing.Publisher`: collects the outcomes of one request."""

    def __init__(self, client: object, count: int, next_partition: int) -> None:
        self.client = client
        self.next_partition = next_partition
        self._left = count
        self.outcomes: dict[int, Outcome] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def publishes_done(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Records are on disk or were refused."""
        self.outcomes.update(outcomes)
        self._left -= len(outcomes)
        if not self._left and not self.done.done():
            self.done.set_result(None)


class Publishes:
    """Publishes of HTTP clients; records without a key go to the partitions in turn."""

    def __init__(self, broker: PushBroker) -> None:
        self._broker = broker
        self._next_partition = 0

    async def publish(
        self, client: object, topic: str, records: list[GivenRecord]
    ) -> tuple[list[Outcome], float]:
        """Return the outcome of each record, when all have one, and the delay of the answer."""
        try:
            opened = await self._broker.open(
                client, SubscribeRequest(topic=topic, mode="fanout", publish=True)
            )
        except PushRefusedError as error:
            raise problem_of(error.refusal) from None
        count = opened.partition_count
        wrong = next((one.partition for one in records if one.partition >= count), None)
        if wrong is not None:
            raise GatewayRefusedError(
                404,
                "Not found",
                f"{topic} has {count} partitions, there is no partition {wrong}.",
                "Leave the partition out: the broker selects one.",
                code="UNKNOWN_TOPIC_OR_PARTITION",
            )
        self._next_partition += 1
        collected = _Collected(client, len(records), self._next_partition)
        published = [_published(place, topic, one, count) for place, one in enumerate(records)]
        publish_all(collected, self._broker, published)
        size = sum(one.size_bytes for one in published)
        wait = self._broker.charge_publish(client, size)
        await collected.done
        return [collected.outcomes[place] for place in range(len(records))], wait


def _published(place: int, topic: str, one: GivenRecord, partition_count: int) -> Published:
    kind = DELETE if one.value is None else MESSAGE
    data = PushData(
        0, one.partition, -1, one.timestamp_ms, -1, 0, kind, one.headers, one.key, one.value
    )
    size = _RECORD_BYTES_MIN + len(one.key or b"") + len(one.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in one.headers)
    return Published(place, topic, data, size, partition_count)


def all_placed(outcomes: list[Outcome]) -> list[tuple[int, int]]:
    """Return the places of all records; raise if one was refused, with the outcome of each."""
    refusals = [one for one in outcomes if isinstance(one, Refusal)]
    if not refusals:
        return [one for one in outcomes if not isinstance(one, Refusal)]
    rows: list[dict[str, object]] = [
        {"error": one.error, "code": one.code, "retriable": one.retriable}
        if isinstance(one, Refusal)
        else {"partition": one[0], "offset": one[1]}
        for one in outcomes
    ]
    raise problem_of(refusals[0], {"records": rows} if len(rows) > 1 else None)
