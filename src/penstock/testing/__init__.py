"""Fakes and fixtures, public: what Penstock is tested with, anyone may test with.

`penstock.testing.Broker` is a broker in this process; it is loaded when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    if name == "Broker":
        from penstock.testing.broker import Broker

        return Broker
    raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
