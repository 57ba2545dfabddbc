"""Kafka's own producer settings (`kafka.*`): the sink uses, ignores or rejects each (pure).

The counterpart of `consumer_settings` for writing. `kafka_settings` applies them.
"""

from collections.abc import Mapping
from typing import Final

from penstock.spark.kafka_settings import SettingTables

USED: Final = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "transaction.timeout.ms",
    }
)

_NO_JAVA: Final = "it configures Java classes"
_NO_METRICS: Final = "the sink has no Kafka metrics; Spark's progress has its figures"
_OWN_RETRIES: Final = "pauses grow from 50 ms to 1 s within kafka.delivery.timeout.ms"
_NO_LINGER: Final = "a batch leaves when it is full or when its task has no more rows"
_OWN_BOUNDS: Final = "a task has at most 5 requests and 32 MiB under way"
_NO_KEY: Final = "rows without a key change partition batch by batch"
_LEVELS: Final = "codecs work at their default level"

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "auto.include.jmx.reporter": _NO_METRICS,
    "buffer.memory": _OWN_BOUNDS,
    "client.dns.lookup": "every address that a name has is tried",
    "compression.gzip.level": _LEVELS,
    "compression.lz4.level": _LEVELS,
    "compression.zstd.level": _LEVELS,
    "config.providers": _NO_JAVA,
    "connections.max.idle.ms": "a connection is opened again when it is needed",
    "enable.metrics.push": _NO_METRICS,
    "linger.ms": _NO_LINGER,
    "max.block.ms": _OWN_RETRIES,
    "max.in.flight.requests.per.connection": _OWN_BOUNDS,
    "max.request.size": "kafka.batch.size bounds a batch, and the topic's max.message.bytes",
    "metadata.max.age.ms": "leaders are asked for when a broker says that they moved",
    "metadata.max.idle.ms": "leaders are asked for when a broker says that they moved",
    "metadata.recovery.rebootstrap.trigger.ms": "bootstrap servers are asked when others are gone",
    "metadata.recovery.strategy": "bootstrap servers are asked when others are gone",
    "metric.reporters": _NO_METRICS,
    "metrics.num.samples": _NO_METRICS,
    "metrics.recording.level": _NO_METRICS,
    "metrics.sample.window.ms": _NO_METRICS,
    "partitioner.adaptive.partitioning.enable": _NO_KEY,
    "partitioner.availability.timeout.ms": _NO_KEY,
    "receive.buffer.bytes": "the system sizes the buffers of sockets",
    "reconnect.backoff.max.ms": _OWN_RETRIES,
    "reconnect.backoff.ms": _OWN_RETRIES,
    "retries": _OWN_RETRIES,
    "retry.backoff.max.ms": _OWN_RETRIES,
    "retry.backoff.ms": _OWN_RETRIES,
    "send.buffer.bytes": "the system sizes the buffers of sockets",
    "socket.connection.setup.timeout.max.ms": "a connection opens within 10 s or is tried again",
    "socket.connection.setup.timeout.ms": "a connection opens within 10 s or is tried again",
}
"""Settings that have no effect here, with the reason."""

REFUSED: Final[Mapping[str, str]] = {
    "interceptor.classes": "Interceptors are Java classes that may change records. Remove it.",
    "key.serializer": "Keys are written as bytes. Remove it and cast the column in the DataFrame.",
    "partitioner.class": (
        "Partitioners are Java classes. Remove it and give the DataFrame a column `partition`."
    ),
    "partitioner.ignore.keys": "Remove it and give the DataFrame a column `partition`.",
    "transaction.two.phase.commit.enable": "The sink has its own two phases. Remove it.",
    "transactional.id": (
        "Each task has a transactional id of its own. Remove it; what they all begin with is the "
        "option transactionalIdPrefix."
    ),
    "value.serializer": (
        "Values are written as bytes. Remove it and cast the column in the DataFrame."
    ),
}
"""Settings that would cause wrong results, with the remedy."""


TABLES: Final = SettingTables("producer", USED, WITHOUT_EFFECT, REFUSED)
