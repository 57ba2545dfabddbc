"""`@penstock.consumer`: turns a function into a `Consumer`. It connects to nothing.

@penstock.consumer(topic="orders", group="billing", dead_letter="dlq.orders")
async def bill(record: penstock.ConsumerRecord) -> None:
    await charge(record.json())
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from penstock.consumers.application import Consumer
from penstock.consumers.handling import ErrorHandler
from penstock.consumers.limits import TIMEOUT_SECONDS_DEFAULT
from penstock.consumers.options import ConsumerOptions, Mode, Order
from penstock.consumers.retry_policy import RetryPolicy
from penstock.core.errors import ConfigError


def consumer(
    *,
    topic: str,
    group: str,
    mode: Literal["fanout", "queue"] = "fanout",
    retry: RetryPolicy | None = None,
    dead_letter: str | None = None,
    on_error: ErrorHandler | None = None,
    batch: int = 1,
    concurrency: int = 8,
    order: Literal["key", "partition"] = "key",
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
    start: Literal["earliest", "latest"] = "earliest",
    bootstrap_server: str | None = None,
    transport: Literal["auto", "kafka", "push"] = "auto",
    push_server: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Callable[[Callable[[Any], Any]], Consumer]:
    """Return a decorator for the handler of a topic's records.

    mode: "fanout" is a consumer group (in order, positions), "queue" a share group (one record to
    one member, acknowledged one by one). retry: attempts and pauses. dead_letter: the topic for
    records without attempts left; without it a consumer in fanout mode stops at such a record.
    on_error: chooses retry, dead letter, skip or stop. batch: above 1 the handler gets a list of up
    to this many records of one partition. concurrency: calls at the same time. order: records with
    the same key, or of the same partition, one after another. timeout_seconds: for one call.
    start: for a group without committed offsets. settings: librdkafka's, for TLS and SASL.
    transport: "push" uses the push protocol of one Penstock broker at push_server (HOST:PORT, or
    PENSTOCK_PUSH_SERVER); "kafka" works with any Kafka; "auto" is push if a push server is known.
    """
    try:
        chosen_mode, chosen_order = Mode(mode), Order(order)
    except ValueError as error:
        raise ConfigError(
            f"@penstock.consumer: {error}.",
            hint='mode is "fanout" or "queue", order is "key" or "partition".',
        ) from error
    options = ConsumerOptions(
        topic=topic,
        group=group,
        mode=chosen_mode,
        retry=retry or RetryPolicy(),
        dead_letter=dead_letter,
        on_error=on_error,
        batch=batch,
        concurrency=concurrency,
        order=chosen_order,
        timeout_seconds=timeout_seconds,
        start=start,
        bootstrap_server=bootstrap_server,
        transport=transport,
        push_server=push_server,
        settings=dict(settings or {}),
    )

    def decorate(handler: Callable[[Any], Any]) -> Consumer:
        return Consumer(handler, options)

    return decorate
