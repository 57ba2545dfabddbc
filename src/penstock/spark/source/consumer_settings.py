"""Kafka's own consumer settings (`kafka.*`): the source uses, ignores or rejects each (pure).

The tables are complete: every setting of Kafka's consumer is in one of them. `kafka_settings`
applies them.
"""

from collections.abc import Mapping
from typing import Final

from penstock.spark.kafka_settings import SettingTables

USED: Final = frozenset(
    {
        "fetch.max.bytes",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
    }
)
"""Settings for reading."""

_NO_GROUP: Final = "the source joins no consumer group: Spark knows which task reads what"
_NO_WAIT: Final = "a task reads only what is there already, so no fetch has to wait"
_NO_RECORDS: Final = "records are not handed over one by one: whole batches become Arrow columns"
_OWN_RETRIES: Final = "pauses grow from 50 ms to 1 s within kafka.request.timeout.ms"
_NO_METRICS: Final = "the source has no Kafka metrics; Spark's progress has its figures"
_NO_JAVA: Final = "it configures Java classes"
_ALWAYS_ASKED: Final = "the source asks for the topics before every micro-batch"

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "allow.auto.create.topics": "reading never creates a topic",
    "auto.commit.interval.ms": "nothing is committed by itself",
    "auto.include.jmx.reporter": _NO_METRICS,
    "check.crcs": "the checksum of every batch is always checked",
    "client.dns.lookup": "every address that a name has is tried",
    "client.rack": "records are read from the leader",
    "config.providers": _NO_JAVA,
    "connections.max.idle.ms": "a task closes its connections when it ends",
    "enable.metrics.push": _NO_METRICS,
    "exclude.internal.topics": "internal topics are never read",
    "fetch.max.wait.ms": _NO_WAIT,
    "fetch.min.bytes": _NO_WAIT,
    "group.instance.id": _NO_GROUP,
    "group.protocol": _NO_GROUP,
    "group.remote.assignor": _NO_GROUP,
    "heartbeat.interval.ms": _NO_GROUP,
    "max.poll.interval.ms": _NO_GROUP,
    "max.poll.records": _NO_RECORDS,
    "metadata.max.age.ms": _ALWAYS_ASKED,
    "metadata.recovery.rebootstrap.trigger.ms": _ALWAYS_ASKED,
    "metadata.recovery.strategy": _ALWAYS_ASKED,
    "metric.reporters": _NO_METRICS,
    "metrics.num.samples": _NO_METRICS,
    "metrics.recording.level": _NO_METRICS,
    "metrics.sample.window.ms": _NO_METRICS,
    "partition.assignment.strategy": _NO_GROUP,
    "receive.buffer.bytes": "the system sizes the buffers of sockets",
    "reconnect.backoff.max.ms": _OWN_RETRIES,
    "reconnect.backoff.ms": _OWN_RETRIES,
    "retry.backoff.max.ms": _OWN_RETRIES,
    "retry.backoff.ms": _OWN_RETRIES,
    "send.buffer.bytes": "the system sizes the buffers of sockets",
    "session.timeout.ms": _NO_GROUP,
    "share.acknowledgement.mode": _NO_GROUP,
    "socket.connection.setup.timeout.max.ms": "a connection opens within 10 s or is tried again",
    "socket.connection.setup.timeout.ms": "a connection opens within 10 s or is tried again",
}
"""Settings that have no effect here, with the reason."""

REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": (
        "Spark keeps the offsets, so there is none to reset. Set startingOffsets to earliest or "
        "latest for a new query; a restarted one goes on where it left off."
    ),
    "enable.auto.commit": (
        "Spark keeps the offsets in its checkpoint. Remove it; for lag in consumer groups use the "
        "progress listener."
    ),
    "interceptor.classes": "Interceptors are Java classes that may change records. Remove it.",
    "key.deserializer": "Keys come as bytes. Remove it and cast the column in the DataFrame.",
    "value.deserializer": "Values come as bytes. Remove it and cast the column in the DataFrame.",
}
"""Settings that would cause wrong results, with the remedy."""


TABLES: Final = SettingTables("consumer", USED, WITHOUT_EFFECT, REFUSED)
