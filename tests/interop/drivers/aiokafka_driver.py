"""aiokafka behind the driver's calls; consumers have no group id and assign.

Its admin client returns the raw responses, so that errors inside them are raised here, as the
client's own classes. It returns no topic ids and cannot request the offset of the largest
timestamp.

A client that cannot log in raises only that it has no connection; the reason is in its log. One
whose token was refused takes the refusal for success, and would wait without an end.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, KafkaError, for_code
from aiokafka.helpers import create_ssl_context

from tests.interop.driver_protocol import (
    NO_OFFSET,
    Cluster,
    Error,
    Fetch,
    Produce,
    Record,
    Security,
    Topic,
    UnsupportedByClientError,
    serve,
)

START_SECONDS = 5
STOP_SECONDS = 5
TIMESTAMP_TYPES = {0: "create", 1: "append"}

Result = TypeVar("Result")


class GivenToken(AbstractTokenProvider):  # type: ignore[misc]
    """Always the same token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class LoggedReason(logging.Handler):
    """Keeps the first error of the client's log, except the one that it raises itself."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            is_reason = not isinstance(argument, KafkaConnectionError)
            if isinstance(argument, Exception) and is_reason:
                self.first = self.first or argument


class AiokafkaDriver:
    """See the module. Each call runs on one loop that lives as long as the driver."""

    def __init__(self, bootstrap: str, runner: asyncio.Runner) -> None:
        self.bootstrap = bootstrap
        self.settings: dict[str, Any] = {"bootstrap_servers": bootstrap}
        self.runner = runner
        self.logged = LoggedReason()
        logging.getLogger("aiokafka").addHandler(self.logged)

    def error_of(self, error: Exception) -> Error:
        if isinstance(error, KafkaConnectionError) and self.logged.first is not None:
            error = self.logged.first
        number = getattr(error, "errno", None) if isinstance(error, KafkaError) else None
        return Error(type(error).__name__, number)

    def secure(self, security: Security) -> None:
        self.logged.first = None
        named = {
            "bootstrap_servers": security["bootstrap"],
            "security_protocol": security["protocol"],
            "sasl_mechanism": security["mechanism"],
            "sasl_plain_username": security["user"],
            "sasl_plain_password": security["password"],
        }
        self.settings = {name: value for name, value in named.items() if value}
        self.settings["ssl_context"] = create_ssl_context(
            cafile=security["ca"],
            certfile=security["certificate"] or None,
            keyfile=security["key"] or None,
        )
        if security["token"]:
            self.settings["sasl_oauth_token_provider"] = GivenToken(security["token"])

    def _ask(self, question: Callable[[AIOKafkaAdminClient], Awaitable[Result]]) -> Result:
        async def ask() -> Result:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return self.runner.run(ask())

    def describe_cluster(self) -> Cluster:
        found: dict[str, Any] = self._ask(lambda admin: admin.describe_cluster())
        return {
            "nodes": [
                {"id": n["node_id"], "host": n["host"], "port": n["port"]} for n in found["brokers"]
            ],
            "controller": found["controller_id"],
            "cluster_id": found["cluster_id"],
        }

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=configs)
        answer = self._ask(lambda admin: admin.create_topics([new]))
        _raise_any(code for _name, code, _message in answer.topic_errors)

    def delete_topic(self, topic: str) -> None:
        answer = self._ask(lambda admin: admin.delete_topics([topic]))
        _raise_any(code for _name, code in answer.topic_error_codes)

    def list_topics(self) -> list[str]:
        return sorted(self._ask(lambda admin: admin.list_topics()))

    def describe_topic(self, topic: str) -> Topic:
        (found,) = self._ask(lambda admin: admin.describe_topics([topic]))
        _raise_any([found["error_code"]])
        return {
            "name": found["topic"],
            "topic_id": None,
            "partitions": [
                {
                    "id": p["partition"],
                    "leader": p["leader"],
                    "replicas": p["replicas"],
                    "isr": p["isr"],
                }
                for p in found["partitions"]
            ],
        }

    def topic_configs(self, topic: str, names: list[str]) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names, ""))
        (answer,) = self._ask(lambda admin: admin.describe_configs([resource]))
        (found,) = answer.resources
        code, _message, _kind, _name, entries = found
        _raise_any([code])
        values = {entry[0]: entry[1] for entry in entries}
        return {name: values[name] for name in names}

    def list_offset(self, topic: str, partition: int, at: str, number: int) -> int:
        place = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> int:
            if at == "earliest":
                return int((await consumer.beginning_offsets([place]))[place])
            if at == "latest":
                return int((await consumer.end_offsets([place]))[place])
            found = (await consumer.offsets_for_times({place: number}))[place]
            return NO_OFFSET if found is None else int(found.offset)

        if at == "max_timestamp":
            raise UnsupportedByClientError(at)
        return self.runner.run(self._with_consumer(ask))

    async def _with_consumer(self, work: Callable[[AIOKafkaConsumer], Awaitable[Result]]) -> Result:
        consumer = AIOKafkaConsumer(
            **self.settings,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=4 << 20,
        )
        await consumer.start()
        try:
            return await work(consumer)
        finally:
            # It passes on that it cancels a fetch which waits to be tried again.
            with contextlib.suppress(asyncio.CancelledError):
                await consumer.stop()

    def produce(self, call: Produce) -> list[tuple[int, int]]:
        return self.runner.run(self._produce(call))

    async def _produce(self, call: Produce) -> list[tuple[int, int]]:
        producer = AIOKafkaProducer(
            **self.settings,
            compression_type=None if call.codec == "none" else call.codec,
            acks="all" if call.acks == "all" else int(call.acks),
            enable_idempotence=call.idempotence,
            max_request_size=4 << 20,
            linger_ms=5,
        )
        try:
            await asyncio.wait_for(producer.start(), START_SECONDS)
            sent = [
                await producer.send(
                    call.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in call.records
            ]
            told = await asyncio.gather(*sent)
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(producer.stop(), STOP_SECONDS)
        # With acks=0 there is no answer.
        return [(-1, NO_OFFSET) if t is None else (t.partition, t.offset) for t in told]

    def fetch(self, call: Fetch) -> list[Record]:
        return self.runner.run(self._with_consumer(lambda consumer: self._read(consumer, call)))

    async def _read(self, consumer: AIOKafkaConsumer, call: Fetch) -> list[Record]:
        place = TopicPartition(call.topic, call.partition)
        consumer.assign([place])
        await _seek(consumer, place, call)
        if call.then_produce is not None:
            await self._produce(call.then_produce)
        records: list[Record] = []
        deadline = time.monotonic() + call.timeout_ms / 1000
        while len(records) < call.count and time.monotonic() < deadline:
            for batch in (await consumer.getmany(timeout_ms=50)).values():
                records += [
                    Record(
                        partition=found.partition,
                        value=found.value,
                        key=found.key,
                        headers=tuple(found.headers),
                        timestamp_ms=found.timestamp,
                        timestamp_type=TIMESTAMP_TYPES[found.timestamp_type],
                        offset=found.offset,
                    )
                    for found in batch
                ]
        return records[: call.count]


async def _seek(consumer: AIOKafkaConsumer, place: TopicPartition, call: Fetch) -> None:
    if call.at == "offset":
        consumer.seek(place, call.number)
    elif call.at == "earliest":
        await consumer.seek_to_beginning(place)
    elif call.at == "latest":
        await consumer.seek_to_end(place)
    else:
        found = await consumer.offsets_for_times({place: call.number})
        consumer.seek(place, found[place].offset)
    await consumer.position(place)


def _raise_any(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise for_code(code)


if __name__ == "__main__":
    with asyncio.Runner() as the_runner:
        serve(AiokafkaDriver(sys.argv[1], the_runner))
