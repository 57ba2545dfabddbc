"""The protocol between a test and a client driver: one JSON line each way.

A driver is a small program around one real client. It is started with the broker's address, reads a
call from each line of its input and answers on its output, either `{"ok": result}` or `{"error":
{"class": the client's own error class, "code": Kafka's number or null}}`. Bytes are base64. The
calls are the methods of `Driver`; the drivers in other languages have the same ones, under the same
names. Calls that a client does not support are answered with the class `Unsupported`, and the tests
name each such gap, so that nothing is skipped silently.

It is NOT a client library: nothing here retries, batches or hides an error.
"""

import base64
import dataclasses
import json
import sys
import traceback
from typing import Protocol, TypedDict

UNSUPPORTED = "Unsupported"
NO_OFFSET = -1


class UnsupportedByClientError(Exception):
    """The client has no such feature."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A record to produce, or one that was fetched (then with offset and kind of timestamp)."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    timestamp_type: str | None = None
    offset: int | None = None


@dataclasses.dataclass(frozen=True)
class Produce:
    """Send the records in order with one producer created for this call, and wait for them all."""

    topic: str
    records: tuple[Record, ...]
    codec: str = "none"
    acks: str = "all"
    idempotence: bool = True


@dataclasses.dataclass(frozen=True)
class Fetch:
    """Read `count` records of one partition by assignment, without a group.

    `at` is `earliest`, `latest`, `offset` or `timestamp`; `number` goes with the last two. With
    `then_produce`, the position is settled first and the records are sent while the fetch waits.
    """

    topic: str
    partition: int
    at: str
    count: int
    number: int = 0
    timeout_ms: int = 20_000
    then_produce: Produce | None = None


@dataclasses.dataclass(frozen=True)
class Error:
    """How a client reported a failure: its own class, and Kafka's number where it has one."""

    kind: str
    code: int | None
    message: str = dataclasses.field(default="", compare=False)


class Partition(TypedDict):
    """One line of a topic's description."""

    id: int
    leader: int
    replicas: list[int]
    isr: list[int]


class Topic(TypedDict):
    """A topic's description; the id only where the client returns it."""

    name: str
    topic_id: str | None
    partitions: list[Partition]


class Node(TypedDict):
    """One broker of the cluster."""

    id: int
    host: str
    port: int


class Cluster(TypedDict):
    """The cluster's description."""

    nodes: list[Node]
    controller: int | None
    cluster_id: str | None


class Security(TypedDict):
    """How a client proves its identity; what a listener does not need is an empty text."""

    bootstrap: str
    protocol: str
    """`SSL`, `SASL_SSL` or `SASL_PLAINTEXT`."""
    ca: str
    """File of the authority that signed the broker's certificate; all files are PEM."""
    certificate: str
    key: str
    mechanism: str
    user: str
    password: str
    token: str


Json = dict[str, "JsonValue"]
JsonValue = None | bool | int | float | str | list["JsonValue"] | Json


class Driver(Protocol):
    """The calls that every driver answers."""

    def describe_cluster(self) -> Cluster: ...

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def list_topics(self) -> list[str]: ...

    def describe_topic(self, topic: str) -> Topic: ...

    def topic_configs(self, topic: str, names: list[str]) -> dict[str, str | None]: ...

    def list_offset(self, topic: str, partition: int, at: str, number: int) -> int: ...

    def produce(self, call: Produce) -> list[tuple[int, int]]: ...

    def fetch(self, call: Fetch) -> list[Record]: ...

    def secure(self, security: Security) -> None:
        """Let the clients of later `produce` and `fetch` calls connect in this way."""
        ...

    def error_of(self, error: Exception) -> Error: ...


def pack(data: bytes | None) -> str | None:
    """Bytes as JSON has them."""
    return None if data is None else base64.b64encode(data).decode()


def unpack(text: str | None) -> bytes | None:
    """Bytes from JSON."""
    return None if text is None else base64.b64decode(text)


def record_to_json(record: Record) -> dict[str, object]:
    """A record as JSON has it."""
    return {
        **dataclasses.asdict(record),
        "key": pack(record.key),
        "value": pack(record.value),
        "headers": [[name, pack(value)] for name, value in record.headers],
    }


class RecordJson(TypedDict):
    """A record on the line."""

    partition: int
    value: str | None
    key: str | None
    headers: list[tuple[str, str | None]]
    timestamp_ms: int | None
    timestamp_type: str | None
    offset: int | None


def record_from_json(data: RecordJson) -> Record:
    """A record from the line."""
    return Record(
        partition=data["partition"],
        value=unpack(data["value"]),
        key=unpack(data["key"]),
        headers=tuple((name, unpack(value)) for name, value in data["headers"]),
        timestamp_ms=data["timestamp_ms"],
        timestamp_type=data["timestamp_type"],
        offset=data["offset"],
    )


class ProduceJson(TypedDict):
    """A produce call on the line."""

    topic: str
    records: list[RecordJson]
    codec: str
    acks: str
    idempotence: bool


def produce_to_json(call: Produce) -> dict[str, object]:
    """A produce call as JSON has it."""
    return {
        "topic": call.topic,
        "codec": call.codec,
        "acks": call.acks,
        "idempotence": call.idempotence,
        "records": [record_to_json(record) for record in call.records],
    }


def produce_from_json(data: ProduceJson) -> Produce:
    """A produce call from the line."""
    return Produce(
        topic=data["topic"],
        records=tuple(record_from_json(record) for record in data["records"]),
        codec=data["codec"],
        acks=data["acks"],
        idempotence=data["idempotence"],
    )


def fetch_to_json(call: Fetch) -> dict[str, object]:
    """A fetch call as JSON has it."""
    then = None if call.then_produce is None else produce_to_json(call.then_produce)
    # Not asdict: it would copy every record of then_produce first.
    shallow = {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}
    return {**shallow, "then_produce": then}


def _answer(driver: Driver, line: str) -> object:
    words = json.loads(line)
    name = words.pop("op")
    if name == "produce":
        return [list(place) for place in driver.produce(produce_from_json(words))]
    if name == "fetch":
        then = words.pop("then_produce")
        call = Fetch(**words, then_produce=None if then is None else produce_from_json(then))
        return [record_to_json(record) for record in driver.fetch(call)]
    return getattr(driver, name)(**words)


def serve(driver: Driver) -> None:
    """The loop of a driver that is written in Python: until the input ends."""
    for line in sys.stdin:
        answer: dict[str, object]
        try:
            answer = {"ok": _answer(driver, line)}
        except UnsupportedByClientError as error:
            answer = {"error": {"class": UNSUPPORTED, "code": None, "message": str(error)}}
        except Exception as error:  # noqa: BLE001  every failure of a client is an answer
            traceback.print_exc()
            told = driver.error_of(error)
            answer = {"error": {"class": told.kind, "code": told.code, "message": str(error)[:500]}}
        print(json.dumps(answer), flush=True)
