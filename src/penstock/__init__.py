"""Penstock: a Kafka-compatible streaming broker in Python.

    async with penstock.BrokerServer(penstock.BrokerConfig(port=0, data_dir="data")) as server:
        print(server.bootstrap_server)

The two names are loaded when they are first used, so that `import penstock` costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.settings.config import BrokerConfig
    from penstock.node.server import BrokerServer

__all__ = ["BrokerConfig", "BrokerServer"]


def __getattr__(name: str) -> object:
    if name == "BrokerConfig":
        from penstock.core.settings.config import BrokerConfig

        return BrokerConfig
    if name == "BrokerServer":
        from penstock.node.server import BrokerServer

        return BrokerServer
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
