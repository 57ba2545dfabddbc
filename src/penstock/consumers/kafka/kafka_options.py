"""Settings of librdkafka for consumers and producers, from the options of a consumer. Pure.

The user's settings come last, except the few that the guarantees rest on: positions are committed
by the consumer alone, and copies of failed records are acknowledged by all in-sync replicas.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from penstock.consumers.limits import BUFFERED_BYTES_MAX
from penstock.consumers.options import ConsumerOptions
from penstock.core.errors import ConfigError

BOOTSTRAP: Final = "bootstrap.servers"
LIBRARY_LOGGER: Final = "penstock.consumers.librdkafka"
WRITE_TIMEOUT_MS: Final = 60_000
"""Time for one copy of a failed record, with all retries."""
_OURS: Final = {
    "group.id": "group",
    "enable.auto.commit": "",
    "enable.auto.offset.store": "",
    "auto.offset.reset": "start",
    "share.acknowledgement.mode": "",
    "max.poll.records": "concurrency",
}
"""Settings that users may not set here, each with the argument to use instead."""
_GROUP_ONLY: Final = frozenset(
    {"group.protocol", "partition.assignment.strategy", "group.instance.id", "session.timeout.ms"}
)
_CONSUMER_ONLY: Final = _GROUP_ONLY | {
    "fetch.min.bytes", "fetch.wait.max.ms", "fetch.max.bytes", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "queued.max.messages.kbytes", "queued.min.messages",
    "isolation.level", "check.crcs", "heartbeat.interval.ms", "client.rack",
    "group.remote.assignor",
}  # fmt: skip


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise `ConfigError` for a setting that the consumer itself controls."""
    for name in settings:
        if name in _OURS:
            instead = _OURS[name]
            raise ConfigError(
                f"setting {name!r} is controlled by @penstock.consumer.",
                hint=f"Use the argument {instead!r}." if instead else "Remove it.",
            )


def connection(bootstrap: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that all clients share."""
    return {
        BOOTSTRAP: bootstrap,
        "client.id": "penstock-consumer",
        "logger": logging.getLogger(LIBRARY_LOGGER),
        **settings,
    }


def group_settings(
    options: ConsumerOptions, bootstrap: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings of a member of a consumer group."""
    check_settings(settings)
    chosen: dict[str, Any] = {
        "group.protocol": "consumer",
        "fetch.max.bytes": BUFFERED_BYTES_MAX,
        "queued.max.messages.kbytes": BUFFERED_BYTES_MAX // 1_024,
        "isolation.level": "read_committed",
        **connection(bootstrap, settings),
    }
    if chosen["group.protocol"] == "classic":
        chosen.setdefault("partition.assignment.strategy", "cooperative-sticky")
    return chosen | {
        "group.id": options.group,
        "auto.offset.reset": options.start,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": False,
    }


def share_settings(
    options: ConsumerOptions, bootstrap: str, settings: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings of a member of a share group."""
    check_settings(settings)
    allowed = {name: value for name, value in settings.items() if name not in _GROUP_ONLY}
    return connection(bootstrap, allowed) | {
        "group.id": options.group,
        "share.acknowledgement.mode": "explicit",
        # Every record of a poll is settled before the next poll, and its lock runs meanwhile.
        "max.poll.records": options.batch * options.concurrency,
    }


def producer_settings(bootstrap: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the writer of retries and dead letters."""
    allowed = {name: value for name, value in settings.items() if name not in _CONSUMER_ONLY}
    return connection(bootstrap, allowed) | {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": WRITE_TIMEOUT_MS,
        "linger.ms": 5,
    }


def admin_settings(bootstrap: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the client that checks topics."""
    return connection(
        bootstrap, {name: value for name, value in settings.items() if name not in _CONSUMER_ONLY}
    )
