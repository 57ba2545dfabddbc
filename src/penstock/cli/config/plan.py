"""Compares a settings file with a running broker: only reads, changes nothing.

Settings are compared if a broker reports them over the wire, by Kafka's names and in Kafka's units.
The other settings of the file are listed as not compared. The broker's own planner plans the
topics, but without the broker's record of the file's earlier settings. So this plan does not
include settings that the broker would reset.
"""

import os.path
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from penstock.cli.brokers import open_cluster
from penstock.cli.config.text import shown
from penstock.cli.text.settings_text import setting_documents
from penstock.client.cluster import Cluster
from penstock.cluster.declared_topics import ExistingTopic, plan_lines, plan_topics
from penstock.core.settings.config import DEFAULT_SOURCE, Loaded, SettingInfo, describe_settings
from penstock.core.settings.listener_declarations import SECTION as LISTENERS
from penstock.core.settings.topic_declarations import TopicDeclaration

_NO_ID: Final = UUID(int=0)
_DYNAMIC: Final = frozenset({"broker", "all brokers"})
"""Sources of values that were changed over the wire. They override a file."""

_PARTS_OF_OTHERS: Final = frozenset(
    {
        "listener.host",
        "listener.port",
        "listener.advertised_host",
        "listener.advertised_port",
        "flush.mode",
        "flush.interval_ms",
    }
)
"""Settings that are a part or a special case of one Kafka setting."""

_PATHS: Final = frozenset({"node.data_dir"})
"""Often set by a flag of the broker, which is not known here. A file without them changes nothing.
"""


class Plan(NamedTuple):
    """The changes of a settings file."""

    steps: list[str]
    problems: list[str]
    """Reasons why some steps are not possible."""
    not_compared: list[str]
    """Settings of the file that a broker does not report in a comparable form."""


def settings_in_force(bootstrap: str, timeout_seconds: float) -> dict[str, dict[str, object]]:
    """Return the settings that the broker at this address reports, by Kafka's names."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        return _in_force(cluster)


def make_plan(loaded: Loaded, bootstrap: str, timeout_seconds: float) -> Plan:
    """Return the steps to the file's state, the impossible steps, and the settings not compared."""
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        in_force = _in_force(cluster)
        existing = _existing(cluster, loaded.topics)
    problems: list[str] = []
    steps: list[str] = []
    not_compared: list[str] = []
    for info in describe_settings():
        is_given = loaded.sources[info.key] != DEFAULT_SOURCE
        found = in_force.get(info.kafka_name)
        wanted = _kafka_text(info, loaded.value(info.key))
        if found is None or wanted is None:
            not_compared += [info.key] if is_given else []
        elif is_given or info.key not in _PATHS:
            steps += _setting_steps(info, wanted, found, problems)
    not_compared += [LISTENERS] if loaded.settings.listeners else []
    topics = plan_topics(loaded.topics, existing, {})
    return Plan([*steps, *plan_lines(topics)], [*problems, *topics.problems], not_compared)


def _setting_steps(
    info: SettingInfo, wanted: str, found: Mapping[str, object], problems: list[str]
) -> Iterator[str]:
    # Kafka reports this value in a coarser unit; it has its default.
    in_force = _kafka_text(info, info.default) if found["value"] is None else str(found["value"])
    if wanted == in_force or (info.key in _PATHS and _paths(wanted) == _paths(in_force or "")):
        return
    line = f"{info.key}: {info.kafka_name} {in_force} -> {wanted}"
    if found["source"] in _DYNAMIC:
        yield f"{line} is NOT done: it was changed over the wire, which wins over the file"
    elif info.is_live:
        yield line
    else:
        problems.append(f"{line} needs a restart; a running broker refuses the whole file for it")


def _paths(text: str) -> set[str]:
    """Return the paths of a comma-separated list, in one normal form."""
    return {os.path.normpath(one.strip()) for one in text.split(",")}


def _kafka_text(info: SettingInfo, value: object) -> str | None:
    """Return a value in Kafka's form; None if Kafka's setting has another meaning."""
    if info.key in _PARTS_OF_OTHERS:
        return None
    if isinstance(value, bool):
        return str(shown(value))
    if isinstance(value, float) and info.unit == "seconds" and info.kafka_name.endswith(".ms"):
        return str(int(value * 1_000))
    return str(value) if isinstance(value, int | str) else None


def _in_force(cluster: Cluster) -> dict[str, dict[str, object]]:
    broker_id, address = min(cluster.brokers().items())
    result = cluster.broker_configs(broker_id)
    return {
        str(one["name"]): {
            "address": str(address),
            "value": one["value"],
            "source": one["source"],
        }
        for one in setting_documents(result.configs)
    }


def _existing(cluster: Cluster, declared: tuple[TopicDeclaration, ...]) -> dict[str, ExistingTopic]:
    wanted = {one.name for one in declared}
    found = {
        topic.name: topic for topic in cluster.all_topics() if topic.name and topic.name in wanted
    }
    configs = cluster.topic_configs(sorted(found)) if found else {}
    return {
        name: ExistingTopic(
            topic.topic_id or _NO_ID,
            len(topic.partitions),
            {
                str(one["name"]): str(one["value"])
                for one in setting_documents(configs[name].configs)
                if one["source"] == "topic"
            },
        )
        for name, topic in found.items()
    }
