"""The options and columns of the sink, read into frozen values or rejected (pure).

Columns and their rules are those of Spark's Kafka sink: `value` is required, `key`, `headers`,
`partition` and `topic` are optional; the option `topic` wins over the column; other columns are
ignored. `deliveryGuarantee`, `decisionTopic`, `transactionalIdPrefix` and `failOnReplayDifference`
are ours.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from penstock.client.security.options import SECURITY_SETTINGS
from penstock.client.transport.options import ClientOptions, parse_client_options
from penstock.records.compression import CODEC_NAMES
from penstock.spark.errors import OptionError, SparkQueryError
from penstock.spark.kafka_settings import PREFIX
from penstock.spark.option_values import read_boolean, read_choice, read_integer, shown
from penstock.spark.sink import producer_settings

KNOWN: Final = (
    "decisionTopic",
    "deliveryGuarantee",
    "failOnReplayDifference",
    "includeHeaders",
    "topic",
    "transactionalIdPrefix",
)
OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options that Spark itself reads and passes on."""

DECISION_TOPIC: Final = "__penstock_sink_decisions"
ID_PREFIX: Final = "penstock-sink"
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Fifteen minutes: the brokers' default maximum (transaction.max.timeout.ms)."""
DELIVERY_TIMEOUT_MS: Final = 120_000
"""Kafka's default: how long a batch is sent again before the task fails."""
BATCH_BYTES: Final = 524_288
"""Half of a topic's default limit; larger than Kafka's 16 KiB, because the latency of a task's
first row does not matter."""
BATCH_BYTES_MAX: Final = 104_857_600
ID_PREFIX_CHARACTERS_MAX: Final = 100
ACKS: Final[Mapping[str, int]] = {"all": -1, "-1": -1, "1": 1, "0": 0}

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS,),
    "partition": ("int",),
}
"""The allowed types of a column, as Spark writes them."""


class Guarantee(Enum):
    """How often a row is in the output after failures."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class ColumnError(SparkQueryError):
    """The DataFrame has unusable columns."""


class SinkColumns(NamedTuple):
    """The position of each sink column in the DataFrame; None for a missing column."""

    value: int
    key: int | None
    headers: int | None
    partition: int | None
    topic: int | None
    """None also when the option names the topic of all rows."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All sink options of a query; they are sent to the tasks."""

    client: ClientOptions
    topic: str | None
    guarantee: Guarantee
    acks: int
    is_idempotent: bool
    codec: int
    batch_bytes_max: int
    transaction_timeout_ms: int
    decision_topic: str
    id_prefix: str
    fails_on_difference: bool
    warnings: tuple[str, ...]
    """Warnings about options that have no effect."""


def read_sink_options(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Return the options; raise `OptionError` for the first wrong one."""
    options = {name.lower(): text for name, text in given.items()}
    warnings = _unknown_options(options)
    to_client, kafka, kafka_warnings = producer_settings.TABLES.split(options)
    guarantee = _guarantee(options, is_stream=is_stream)
    acks, is_idempotent = _acks(kafka, guarantee)
    delivery_ms = _kafka_integer(kafka, "delivery.timeout.ms", DELIVERY_TIMEOUT_MS, 1, 3_600_000)
    client = parse_client_options(to_client, prefix=PREFIX).for_task()
    topic = options.get("topic")
    return SinkOptions(
        client=replace(client, retry_timeout_ms=delivery_ms),
        topic=None if topic is None else _topic_name("topic", topic.strip()),
        guarantee=guarantee,
        acks=acks,
        is_idempotent=is_idempotent,
        codec=CODEC_NAMES.index(
            read_choice(
                "kafka.compression.type", kafka.get("compression.type", "none"), CODEC_NAMES
            )
        ),
        batch_bytes_max=_kafka_integer(kafka, "batch.size", BATCH_BYTES, 1, BATCH_BYTES_MAX),
        transaction_timeout_ms=_kafka_integer(
            kafka, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, 1, 2**31 - 1
        ),
        decision_topic=_topic_name("decisionTopic", options.get("decisiontopic", DECISION_TOPIC)),
        id_prefix=_id_prefix(options.get("transactionalidprefix", ID_PREFIX)),
        fails_on_difference=read_boolean(
            "failOnReplayDifference", options.get("failonreplaydifference", "true")
        ),
        warnings=tuple(warnings + kafka_warnings),
    )


def find_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> SinkColumns:
    """Return the positions of the sink's columns among (name, type); raise `ColumnError`."""
    places: dict[str, int] = {}
    for place, (name, kind) in enumerate(columns):
        if name not in _TYPES:
            continue
        if name in places:
            raise ColumnError(f"the DataFrame has two columns `{name}`. Drop or rename one.")
        if kind not in _TYPES[name]:
            wanted = " or ".join(_TYPES[name])
            raise ColumnError(
                f"the column `{name}` is {kind}, and the sink writes {wanted}. Cast it, such as "
                f"df.withColumn('{name}', col('{name}').cast('{_TYPES[name][0]}'))."
            )
        places[name] = place
    if "value" not in places:
        raise ColumnError(
            "the DataFrame has no column `value`. Name the column to write: "
            "df.selectExpr('to_json(struct(*)) AS value')."
        )
    if topic is None and "topic" not in places:
        raise ColumnError(
            "nothing says where to write: set the option topic, or give the DataFrame a column "
            "`topic`."
        )
    return SinkColumns(
        places["value"],
        places.get("key"),
        places.get("headers"),
        places.get("partition"),
        places.get("topic") if topic is None else None,
    )


def _guarantee(options: Mapping[str, str], *, is_stream: bool) -> Guarantee:
    default = Guarantee.EXACTLY_ONCE if is_stream else Guarantee.AT_LEAST_ONCE
    name = "deliveryGuarantee"
    choices = tuple(one.value for one in Guarantee)
    guarantee = Guarantee(read_choice(name, options.get(name.lower(), default.value), choices))
    if guarantee is Guarantee.EXACTLY_ONCE and not is_stream:
        raise OptionError(
            name,
            "a batch cannot be written exactly once: its second run cannot be recognized.",
            "Remove it, or use writeStream with trigger(availableNow=True).",
        )
    return guarantee


def _acks(kafka: Mapping[str, str], guarantee: Guarantee) -> tuple[int, bool]:
    acks = ACKS[read_choice("kafka.acks", kafka.get("acks", "all"), tuple(ACKS))]
    text = kafka.get("enable.idempotence", "true" if acks == -1 else "false")
    is_idempotent = read_boolean("kafka.enable.idempotence", text)
    if guarantee is Guarantee.EXACTLY_ONCE and (acks != -1 or not is_idempotent):
        raise OptionError(
            "kafka.acks" if acks != -1 else "kafka.enable.idempotence",
            "exactly-once needs acks=all and idempotence.",
            "Remove it, or set deliveryGuarantee to at-least-once.",
        )
    if is_idempotent and acks != -1:
        raise OptionError(
            "kafka.enable.idempotence",
            "an idempotent producer needs acks=all.",
            "Remove one of kafka.acks and kafka.enable.idempotence.",
        )
    return acks, is_idempotent


def _kafka_integer(
    kafka: Mapping[str, str], name: str, default: int, lowest: int, highest: int
) -> int:
    if name not in kafka:
        return default
    return read_integer(PREFIX + name, kafka[name], lowest=lowest, highest=highest)


def _topic_name(option: str, name: str) -> str:
    if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise OptionError(
            option,
            f"{shown(name)} is no name of a topic.",
            "Set 1 to 249 letters, digits, dots, underscores or hyphens.",
        )
    return name


def _id_prefix(text: str) -> str:
    if not 0 < len(text) <= ID_PREFIX_CHARACTERS_MAX:
        raise OptionError(
            "transactionalIdPrefix",
            f"it has {len(text)} characters.",
            f"Set 1 to {ID_PREFIX_CHARACTERS_MAX}.",
        )
    return text


def _unknown_options(options: Mapping[str, str]) -> list[str]:
    """Reject likely typing errors, and return warnings for the rest."""
    known = {name.lower(): name for name in KNOWN}
    warnings = []
    for name in sorted(options):
        if name in known or name in OF_SPARK or name.startswith(PREFIX):
            continue
        if name in SECURITY_SETTINGS:
            raise OptionError(name, "there is no such option.", f"Did you mean '{PREFIX}{name}'?")
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if close:
            raise OptionError(
                name, "there is no such option.", f"Did you mean '{known[close[0]]}'?"
            )
        warnings.append(f"option '{name}' has no effect: the sink does not know it.")
    if "includeheaders" in options:
        warnings.append(
            "option 'includeHeaders' has no effect on writing: a column `headers` is written."
        )
    return warnings
