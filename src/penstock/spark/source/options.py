"""The options of the source, read into one frozen value; errors name the option and its remedy.

Names, defaults and conflicts are those of Spark's Kafka source; `maxBytesPerTrigger` and
`maxBytesPerPartition` are ours. Names are case-insensitive, as everywhere in Spark. Options that
Spark's source ignores silently are rejected here when they make no sense (an end in a stream), and
cause a warning when they have no effect. A name similar to a known one is treated as a typing
error. Pure: it does not check at a broker whether a topic exists.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from penstock.client.calls import FetchBounds
from penstock.client.security.options import SECURITY_PARTS, SECURITY_SETTINGS
from penstock.client.transport.options import ClientOptions, parse_client_options
from penstock.spark.errors import OptionError
from penstock.spark.kafka_settings import PREFIX
from penstock.spark.option_values import (
    read_boolean,
    read_choice,
    read_integer,
    read_size,
    read_time_ms,
    require_short,
    shown,
)
from penstock.spark.partition_json import read_partitions
from penstock.spark.planning import ReadLimits, Splitting
from penstock.spark.sealed import sealed_options
from penstock.spark.sealed.sealed_options import SealedOptions, SegmentsUse
from penstock.spark.source import consumer_settings
from penstock.spark.source.starting import (
    EARLIEST,
    ENDING,
    LATEST,
    STARTING,
    Position,
    PositionOptions,
    read_position,
    require_order,
)
from penstock.spark.source.subscription import Subscription, is_topic_name

KNOWN: Final = (
    "assign",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxBytesPerPartition",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "partition.metadata.cache.ttl.ms",
    *sealed_options.NAMES,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)
"""All options without the prefix `kafka.`, spelt as in Spark's documentation."""

MAX_TRIGGER_DELAY_MS: Final = 900_000
"""Spark's default: a batch waits at most 15 minutes for minOffsetsPerTrigger."""
LOOKUP_ATTEMPTS: Final = 3
LOOKUP_PAUSE_MS: Final = 1_000
"""Spark's defaults: an end that moved backwards is looked up three times, a second apart."""
POLL_TIMEOUT_MS: Final = 120_000
"""How long a task waits for a broker without progress: Spark's network timeout."""
POLL_TIMEOUT_MS_MAX: Final = 3_600_000
FETCH_BYTES: Final = 8_388_608
"""The size of one fetch. A task holds two in memory; below 4 MiB, round trips cost throughput."""
FETCH_BYTES_MAX: Final = 104_857_600
PARTITIONS_MAX: Final = 100_000
TRIGGER_OPTIONS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
)
PATTERN_CHARACTERS_MAX: Final = 10_000


class Mode(Enum):
    """The kind of query. If it is unknown, only options that both kinds reject are rejected."""

    ANY = "any"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Lookups:
    """The limits for the driver's lookups of topics and ends."""

    attempts: int = LOOKUP_ATTEMPTS
    pause_ms: int = LOOKUP_PAUSE_MS
    topics_ttl_ms: int = -1
    """The maximum age of the list of topics; -1 looks it up each time."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All source options of a query."""

    client: ClientOptions
    """The client settings of the driver."""
    task_client: ClientOptions
    """The client settings of tasks, which may wait longer."""
    subscription: Subscription
    start: Position
    end: Position
    may_start_at_latest: bool
    """Whether a starting time after the last record means the end."""
    fail_on_data_loss: bool
    include_headers: bool
    is_read_committed: bool
    limits: ReadLimits
    splitting: Splitting
    lookups: Lookups
    fetch: FetchBounds
    group_id: str | None
    group_prefix: str | None
    sealed: SealedOptions
    warnings: tuple[str, ...]
    """Warnings about options that have no effect."""


def read_source_options(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Return the options; raise `OptionError` for the first wrong one."""
    options = {name.lower(): text for name, text in given.items()}
    warnings = _unknown_options(options)
    to_client, kafka, kafka_warnings = consumer_settings.TABLES.split(options)
    client = parse_client_options(to_client, prefix=PREFIX).for_task()
    # The default start differs: a batch reads all records, a stream only new records.
    default_start = LATEST if mode is Mode.STREAM else EARLIEST
    start = read_position(options, STARTING, default_start)
    end = read_position(options, ENDING, LATEST)
    warnings += kafka_warnings + _overridden(options, STARTING)
    if mode is Mode.STREAM:
        _require_no_end(options)
    if mode is Mode.BATCH:
        warnings += _overridden(options, ENDING) + _require_batch(options, start, end)
    strategy = options.get("startingoffsetsbytimestampstrategy", "error")
    return SourceOptions(
        client=client,
        subscription=_subscription(options),
        start=start,
        end=end,
        may_start_at_latest=read_choice(
            "startingOffsetsByTimestampStrategy", strategy, ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        include_headers=_boolean(options, "includeHeaders", default=False),
        is_read_committed=read_choice(
            "kafka.isolation.level",
            kafka.get("isolation.level", "read_uncommitted"),
            ("read_uncommitted", "read_committed"),
        )
        == "read_committed",
        limits=_limits(options),
        splitting=_splitting(options),
        lookups=_lookups(options),
        fetch=_fetch_bounds(kafka),
        task_client=_task_client(options, client),
        group_id=kafka.get("group.id"),
        group_prefix=options.get("groupidprefix"),
        sealed=_sealed(options, mode),
        warnings=tuple(warnings),
    )


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [
        name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options
    ]
    if len(given) != 1:
        raise OptionError(
            given[1] if given else "subscribe",
            f"it cannot be set together with {given[0]}."
            if given
            else "nothing says what to read.",
            "Set exactly one of subscribe (names of topics), subscribePattern (a regular "
            "expression) and assign (partitions in JSON).",
        )
    option = given[0]
    text = require_short(option, options[option.lower()]).strip()
    if option == "assign":
        return Subscription(partitions=read_partitions(option, text))
    if option == "subscribePattern":
        return Subscription(pattern=_pattern(text))
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in topics:
        if not is_topic_name(name):
            raise OptionError(
                option,
                f"{shown(name)} cannot be the name of a topic.",
                "Set names of letters, digits, dots, _ and -, with commas between them; "
                "for a regular expression use subscribePattern.",
            )
    if not topics:
        raise OptionError(option, f"{shown(text)} names no topic.", "Set names: orders,users.")
    return Subscription(topics=topics)


def _pattern(text: str) -> str:
    if not text or len(text) > PATTERN_CHARACTERS_MAX:
        raise OptionError(
            "subscribePattern", f"{shown(text)} is no pattern.", "Set one, such as orders-.*"
        )
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        raise OptionError(
            "subscribePattern",
            f"{shown(text)} is not a regular expression: {error}.",
            "Correct it; it matches a topic when it is found anywhere in the name.",
        ) from None
    return text


def _require_no_end(options: Mapping[str, str]) -> None:
    for name in ENDING:
        if name.lower() in options:
            raise OptionError(
                name,
                "a stream has no end.",
                "Remove it, use trigger(availableNow=True) to stop at the present end, or read "
                "in batch with spark.read.",
            )


def _require_batch(options: Mapping[str, str], start: Position, end: Position) -> list[str]:
    if start.has_edge(LATEST):
        raise OptionError(
            start.option, "a batch cannot start at the latest.", "Set earliest, offsets or a time."
        )
    if end.has_edge(EARLIEST):
        raise OptionError(
            end.option, "a batch cannot end at the earliest.", "Set latest, offsets or a time."
        )
    require_order(start, end)
    return [
        f"option '{name}' has no effect in a batch: it is for streams."
        for name in TRIGGER_OPTIONS
        if name.lower() in options
    ]


def _sealed(options: Mapping[str, str], mode: Mode) -> SealedOptions:
    found = sealed_options.read_sealed_options(
        options, cuts_by_records="maxrecordsperpartition" in options
    )
    if mode is Mode.STREAM and found.use is SegmentsUse.ONLY:
        raise OptionError(
            sealed_options.SEGMENTS,
            "a stream reads its newest records through Fetch, so it cannot be only.",
            "Set auto: a micro-batch that lags reads sealed segments.",
        )
    return found


def _overridden(options: Mapping[str, str], names: PositionOptions) -> list[str]:
    given = [name for name in names if name.lower() in options]
    return [f"option '{name}' has no effect: {given[0]} wins over it." for name in given[1:]]


def _limits(options: Mapping[str, str]) -> ReadLimits:
    offsets_max = _integer(options, "maxOffsetsPerTrigger", 1)
    offsets_min = _integer(options, "minOffsetsPerTrigger", 1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError(
            "minOffsetsPerTrigger",
            f"{offsets_min} is more than maxOffsetsPerTrigger, {offsets_max}.",
            "Set the smaller one to min.",
        )
    delay = options.get("maxtriggerdelay")
    size = options.get("maxbytespertrigger")
    return ReadLimits(
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        delay_ms_max=(
            MAX_TRIGGER_DELAY_MS if delay is None else read_time_ms("maxTriggerDelay", delay)
        ),
        bytes_max=None if size is None else read_size("maxBytesPerTrigger", size),
    )


def _splitting(options: Mapping[str, str]) -> Splitting:
    size = options.get("maxbytesperpartition")
    split = Splitting(
        partitions_min=_integer(options, "minPartitions", 1, PARTITIONS_MAX),
        records_max=_integer(options, "maxRecordsPerPartition", 1),
    )
    if size is None:
        return split
    return Splitting(
        split.partitions_min, split.records_max, read_size("maxBytesPerPartition", size)
    )


def _lookups(options: Mapping[str, str]) -> Lookups:
    attempts = _integer(options, "fetchOffset.numRetries", 1, 1_000)
    pause_ms = _integer(options, "fetchOffset.retryIntervalMs", 0, 600_000)
    ttl_option = "partition.metadata.cache.ttl.ms"
    ttl_ms = _integer(options, ttl_option, -1)
    if ttl_ms == 0:
        raise OptionError(ttl_option, "0 is out of range.", "Set milliseconds, or -1 for no cache.")
    return Lookups(
        LOOKUP_ATTEMPTS if attempts is None else attempts,
        LOOKUP_PAUSE_MS if pause_ms is None else pause_ms,
        -1 if ttl_ms is None else ttl_ms,
    )


def _task_client(options: Mapping[str, str], client: ClientOptions) -> ClientOptions:
    timeout_ms = _integer(options, "kafkaConsumer.pollTimeoutMs", 1, POLL_TIMEOUT_MS_MAX)
    if timeout_ms is None and "kafka.default.api.timeout.ms" not in options:
        timeout_ms = POLL_TIMEOUT_MS
    return client if timeout_ms is None else replace(client, retry_timeout_ms=timeout_ms)


def _fetch_bounds(kafka: Mapping[str, str]) -> FetchBounds:
    # A task reads one partition, so the smaller of the two settings limits its fetch.
    sizes = [
        read_integer(PREFIX + name, kafka[name], lowest=1, highest=2**31 - 1)
        for name in ("max.partition.fetch.bytes", "fetch.max.bytes")
        if name in kafka
    ]
    default = FETCH_BYTES_MAX if "max.partition.fetch.bytes" in kafka else FETCH_BYTES
    size = min([*sizes, default])
    return FetchBounds(bytes_max=size, partition_bytes_max=size)


_SECURITY_OPTIONS: Final = sorted(PREFIX + name for name in SECURITY_SETTINGS)


def _unknown_options(options: Mapping[str, str]) -> list[str]:
    """Reject likely typing errors, and return warnings for the rest."""
    known = {name.lower(): name for name in KNOWN}
    warnings = []
    for name in sorted(options):
        if name in known or name.startswith(PREFIX):
            continue
        if any(part in name for part in SECURITY_PARTS):
            # A warning would leave the connection without the security that the user asked for.
            wanted = name.strip("\ufeff \t")
            meant = difflib.get_close_matches(wanted, _SECURITY_OPTIONS, n=1, cutoff=0.6)
            remedy = f"Did you mean '{meant[0]}'?" if meant else "Remove it."
            raise OptionError(name, "there is no such option.", remedy)
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if close:
            raise OptionError(
                name, "there is no such option.", f"Did you mean '{known[close[0]]}'?"
            )
        warnings.append(f"option '{name}' has no effect: the source does not know it.")
    return warnings


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    return default if text is None else read_boolean(name, text)


def _integer(
    options: Mapping[str, str], name: str, lowest: int, highest: int = 2**63 - 1
) -> int | None:
    text = options.get(name.lower())
    return None if text is None else read_integer(name, text, lowest=lowest, highest=highest)
