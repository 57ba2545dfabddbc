"""Penstock: a Kafka-compatible streaming broker in Python.

    async with penstock.BrokerServer(penstock.BrokerConfig(port=0, data_dir="data")) as server:
        print(server.bootstrap_server)

    @penstock.consumer(topic="orders", group="billing", dead_letter="dlq.orders")
    async def bill(record: penstock.ConsumerRecord) -> None: ...

    penstock.run(bill)

Names are loaded when they are first used, so that `import penstock` costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.consumers.application import Consumer, run
    from penstock.consumers.consumer_record import ConsumerRecord
    from penstock.consumers.decorator import consumer
    from penstock.consumers.handling import ErrorAction, ErrorHandler, Failure, MessageHandler
    from penstock.consumers.retry_policy import RetryPolicy
    from penstock.core.settings.config import BrokerConfig
    from penstock.node.server import BrokerServer

__all__ = [
    "BrokerConfig",
    "BrokerServer",
    "Consumer",
    "ConsumerRecord",
    "ErrorAction",
    "ErrorHandler",
    "Failure",
    "MessageHandler",
    "RetryPolicy",
    "consumer",
    "run",
]

_CONSUMER_MODULES = {
    "Consumer": "application",
    "ConsumerRecord": "consumer_record",
    "ErrorAction": "handling",
    "ErrorHandler": "handling",
    "Failure": "handling",
    "MessageHandler": "handling",
    "RetryPolicy": "retry_policy",
    "consumer": "decorator",
    "run": "application",
}


def __getattr__(name: str) -> object:
    if name == "BrokerConfig":
        from penstock.core.settings.config import BrokerConfig

        return BrokerConfig
    if name == "BrokerServer":
        from penstock.node.server import BrokerServer

        return BrokerServer
    if name in _CONSUMER_MODULES:
        from importlib import import_module

        return getattr(import_module(f"penstock.consumers.{_CONSUMER_MODULES[name]}"), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
