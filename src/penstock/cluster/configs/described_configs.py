"""Settings for DescribeConfigs: the value in force, its source, and its synonyms.

A broker's settings have layers, and the first layer with a value wins, as in Kafka: changes over
the wire for this broker, changes for all brokers, the settings at the broker's start, the default.
A topic or a group without its own value uses the broker setting that is its synonym. Some broker
settings exist in several units (`log.retention.ms`, `.minutes`, `.hours`): all units are synonyms
of each other, and the finest has priority.

Pure. It does not interpret values (`topic_configs` does) and stores nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from penstock.cluster.configs.topic_config_table import BEYOND_KAFKA, TABLE, TopicConfig


class ConfigSource(IntEnum):
    """The source of a value, with Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another name of the same setting, with its value under that name."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One setting of one topic, group or broker, as DescribeConfigs shows it."""

    config: TopicConfig
    value: str | None
    """None if it is set in another unit, or not at all."""
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    """In the order of precedence; the first is the value in force."""
    is_read_only: bool = False


_UNITS: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms",),
)
"""Broker settings that exist in several units; the finest has no default."""

_SAME_SETTING: Final[Mapping[str, tuple[str, ...]]] = {
    name: names for names in _UNITS for name in names
}
_DEFAULTS_IN_HOURS: Final = {
    "log.retention.hours": "168",
    "log.roll.hours": "168",
    "log.roll.jitter.hours": "0",
}

TOPIC_DEFAULTS: Final[Mapping[str, str]] = {
    **{
        config.synonym: config.default
        for config in TABLE
        if config.synonym is not None and config.synonym not in _SAME_SETTING
    },
    **_DEFAULTS_IN_HOURS,
}
"""The broker's settings that are defaults of topics, with Kafka's defaults, if there are any."""

TOPIC_SYNONYMS: Final[Mapping[str, TopicConfig]] = {
    config.synonym: config for config in TABLE if config.synonym is not None
}
"""The topic setting of each broker setting that is its default."""

_IN_ORDER: Final = tuple(sorted(TABLE, key=lambda config: config.name))
_SHOWN_IF_SET: Final = frozenset(config.name for config in BEYOND_KAFKA)
_NOTHING: Final[Mapping[str, str]] = {}


class BrokerLayers(NamedTuple):
    """The settings given to the broker, by Kafka's names; the first layer wins."""

    own: Mapping[str, str] = _NOTHING
    """Changes over the wire for this broker."""
    shared: Mapping[str, str] = _NOTHING
    """Changes over the wire for all brokers."""
    static: Mapping[str, str] = _NOTHING
    """The settings that the broker was started with, without defaults."""

    def given(self, name: str) -> str | None:
        """Return the value that is set under exactly this name; None if there is none."""
        return next((layer[name] for layer in self if name in layer), None)


NO_LAYERS: Final = BrokerLayers()


def broker_synonyms(
    name: str, layers: BrokerLayers, defaults: Mapping[str, str] = TOPIC_DEFAULTS
) -> tuple[Synonym, ...]:
    """Return the sources of a broker setting under all its names, in order of precedence.

    Names before the first mention of `name` itself are left out, as in Kafka: a value that is set
    only in hours is not a synonym of the setting in milliseconds.
    """
    sources = (
        (layers.own, ConfigSource.DYNAMIC_BROKER),
        (layers.shared, ConfigSource.DYNAMIC_ALL_BROKERS),
        (layers.static, ConfigSource.STATIC_BROKER),
        (defaults, ConfigSource.DEFAULT),
    )
    names = _SAME_SETTING.get(name, (name,))
    found = [
        Synonym(one, layer[one], source)
        for layer, source in sources
        for one in names
        if one in layer
    ]
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))


def topic_defaults(layers: BrokerLayers) -> dict[str, str]:
    """Return the defaults of topics, by the names of their settings.

    It has only settings that are set on the broker: all others have the default of the table.
    """
    given = {config.name: layers.given(name) for name, config in TOPIC_SYNONYMS.items()}
    return {name: value for name, value in given.items() if value is not None}


def describe_topic(
    overrides: Mapping[str, str], layers: BrokerLayers = NO_LAYERS
) -> tuple[DescribedConfig, ...]:
    """Return every setting of a topic, ordered by name; settings beyond Kafka's only if set."""
    return tuple(
        describe_one(
            config,
            overrides.get(config.name),
            () if config.synonym is None else broker_synonyms(config.synonym, layers),
            ConfigSource.TOPIC,
        )
        for config in _IN_ORDER
        if config.name in overrides or config.name not in _SHOWN_IF_SET
    )


def describe_one(
    config: TopicConfig,
    override: str | None,
    followed: tuple[Synonym, ...],
    own_source: ConfigSource,
) -> DescribedConfig:
    """Return a setting of a topic or group, with the broker's synonyms that are its defaults."""
    if override is not None:
        own = Synonym(config.name, override, own_source)
        return DescribedConfig(config, override, own_source, (own, *followed))
    if followed:
        return DescribedConfig(config, followed[0].value, followed[0].source, followed)
    return DescribedConfig(config, config.default, ConfigSource.DEFAULT, ())
