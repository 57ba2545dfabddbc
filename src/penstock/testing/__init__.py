"""Public fakes and fixtures, which Penstock's own tests use too.

`Broker` is a broker in this process, with faults on demand, and `AsyncBroker` the same for code on
an event loop. `deliver` runs the handler of a consumer without a broker. Names are imported at
their first use, because pytest imports this package in every project that has Penstock installed
(`penstock.testing.plugin`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.async_broker import AsyncBroker
    from penstock.testing.broker import Broker
    from penstock.testing.consumer_delivery import (
        Delivery,
        deliver,
        deliver_async,
        running_consumer,
    )
    from penstock.testing.records_fixture import Records
    from penstock.testing.topic_records import RecordsMissingError, TopicRecord

__all__ = [
    "AsyncBroker",
    "Broker",
    "Delivery",
    "Records",
    "RecordsMissingError",
    "TopicRecord",
    "deliver",
    "deliver_async",
    "running_consumer",
]

_MODULES = {
    "AsyncBroker": "async_broker",
    "Broker": "broker",
    "Delivery": "consumer_delivery",
    "Records": "records_fixture",
    "RecordsMissingError": "topic_records",
    "TopicRecord": "topic_records",
    "deliver": "consumer_delivery",
    "deliver_async": "consumer_delivery",
    "running_consumer": "consumer_delivery",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"penstock.testing.{module}"), name)
