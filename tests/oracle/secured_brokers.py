"""A secured broker by its name: the same listeners, users and certificates on either of them.

Guarantees: `secured_broker("kafka", folder)` and `secured_broker("penstock", folder)` start a fresh
broker with the options that both have. A test with the names as parameters runs on both.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.oracle.secured_kafka import MECHANISMS, secured_kafka
from tests.oracle.secured_penstock import SecuredBroker, secured_penstock

BROKERS: Final = ("penstock", "kafka")


def secured_broker(
    name: str,
    folder: Path,
    *,
    mechanisms: Sequence[str] = MECHANISMS,
    reauthentication_ms: Mapping[str, int] | None = None,
) -> AbstractContextManager[SecuredBroker]:
    """Start the broker of this name below `folder`, and stop it at the end."""
    assert name in BROKERS, name
    start = secured_kafka if name == "kafka" else secured_penstock
    return start(folder, mechanisms=mechanisms, reauthentication_ms=reauthentication_ms)
