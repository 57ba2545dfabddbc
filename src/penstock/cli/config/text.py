"""Settings and declared topics as `penstock config` shows them: rows, documents, TOML.

Fields of the documents are part of the interface: fields are added, never removed. The module reads
no file and connects to no broker.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from penstock.cli.output import print_json, print_table
from penstock.core.settings.config import Loaded, SettingInfo
from penstock.core.settings.contradictions import ADDRESS_KEYS
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.setting_names import short_variable
from penstock.core.settings.topic_declarations import TopicDeclaration

_SOURCES: Final[Mapping[str, str]] = {
    "broker": "a change of this broker over the wire (dynamic), which wins over the file",
    "all brokers": "a change of all brokers over the wire (dynamic), which wins over the file",
    "settings file": "settings file, environment or flag",
}
"""The text for each source that a broker reports."""


def value_document(info: SettingInfo, loaded: Loaded) -> dict[str, object]:
    """Return a setting with its value and the source of the value."""
    return {"key": info.key, "value": loaded.value(info.key), "source": loaded.sources[info.key]}


def explained(info: SettingInfo, loaded: Loaded) -> dict[str, object]:
    """Return all information about a setting."""
    return {
        **value_document(info, loaded),
        "default": info.default,
        "type": info.type_text.replace("`", ""),
        "range": info.range_text or None,
        "unit": info.unit or None,
        "live": info.is_live,
        "environment": info.environment_name,
        "short_environment": short_variable(info.key) or None,
        "kafka": info.kafka_name or None,
        "description": info.description,
    }


def topic_document(topic: TopicDeclaration) -> dict[str, object]:
    """Return a declared topic as a document."""
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "settings": dict(topic.settings),
        "source": topic.source,
    }


def print_values(rows: Iterable[Mapping[str, object]]) -> None:
    """Print a table of values; print nothing if there are none."""
    cells = [[row["key"], shown(row["value"]), row["source"]] for row in rows]
    if cells:
        print_table(["setting", "value", "source"], cells)


def print_topics(topics: Iterable[Mapping[str, object]]) -> None:
    """Print a table of declared topics; print nothing if there are none."""
    rows: list[list[object]] = []
    for topic in topics:
        settings = topic["settings"]
        assert isinstance(settings, dict)
        settings_text = ", ".join(f"{name}={value}" for name, value in settings.items())
        partitions = "default" if topic["partitions"] is None else topic["partitions"]
        rows.append([topic["name"], partitions, settings_text or None, topic["source"]])
    if rows:
        print_table(["topic", "partitions", "settings", "source"], rows)


def print_one(document: Mapping[str, object]) -> None:
    """Print one setting with all its information."""
    click.echo(f"{document['key']} = {shown(document['value'])}")
    click.echo(f"  {document['description']}")
    unit = f", in {document['unit']}" if document["unit"] else ""
    click.echo(f"  source:       {document['source']}")
    click.echo(f"  default:      {shown(document['default'])}")
    click.echo(f"  type:         {document['type']}{unit}")
    if document["range"]:
        click.echo(f"  range:        {document['range']}")
    live = "yes, the file is watched" if document["live"] else "no, it needs a restart"
    click.echo(f"  changes live: {live}")
    click.echo(f"  environment:  {document['environment']}")
    if document["short_environment"]:
        click.echo(f"  short name:   {document['short_environment']}, if REGISTRY_URL is set too")
    if document["kafka"]:
        click.echo(f"  Kafka's name: {document['kafka']}")
    if "broker" in document:
        click.echo(f"  in force:     {_in_force(document['broker'], document['default'])}")


def print_remedy(name: str, remedy: str, *, as_json: bool) -> None:
    """Print what Penstock has in the place of a setting of Kafka."""
    if as_json:
        print_json({"kafka": name, "remedy": remedy})
    else:
        click.echo(f"{name} is a name of Kafka. {remedy}")


def _in_force(broker: object, default: object) -> str:
    if not isinstance(broker, dict):
        return "a broker does not report this setting over the wire"
    source = _SOURCES.get(str(broker["source"]), broker["source"])
    # Kafka reports it in a coarser unit while it has its default.
    value = shown(default) if broker["value"] is None else broker["value"]
    return f"{value} on {broker['address']}, from {source}"


def shown(value: object) -> object:
    """Return a value in the form of a settings file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "unset" if value is None else value


def listener_document(listener: NamedListener) -> dict[str, object]:
    """Return a declared listener, without the keys that have their default."""
    document = listener.model_dump(exclude_defaults=True, mode="json")
    return {**document, "protocol": listener.protocol}


def print_listeners(listeners: Iterable[Mapping[str, object]]) -> None:
    """Print a table of declared listeners; print nothing if there are none."""
    rows: list[list[object]] = []
    for one in listeners:
        address = f"{one.get('host', '127.0.0.1')}:{one['port']}"
        mechanisms = one.get("mechanisms", [])
        assert isinstance(mechanisms, list)
        rows.append([one["name"], one["protocol"], address, ", ".join(mechanisms) or None])
    if rows:
        print_table(["listener", "protocol", "address", "mechanisms"], rows)


def toml_lines(
    rows: Iterable[Mapping[str, object]],
    topics: Iterable[Mapping[str, object]],
    listeners: Sequence[Mapping[str, object]] = (),
) -> str:
    """Return settings, topics and listeners as a TOML file, without unset values."""
    lines: list[str] = []
    section = ""
    for row in rows:
        if row["value"] is None or (listeners and row["key"] in ADDRESS_KEYS):
            continue
        table, _, name = str(row["key"]).partition(".")
        if table != section:
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
            section = table
        lines.append(f"{name} = {_toml(row['value'])}")
    for topic in topics:
        lines += ["", "[[topics]]"] if lines else ["[[topics]]"]
        lines.append(f"name = {_toml(topic['name'])}")
        if topic["partitions"] is not None:
            lines.append(f"partitions = {topic['partitions']}")
        settings = topic["settings"]
        assert isinstance(settings, dict)
        if settings:
            inner = ", ".join(f"{_toml(name)} = {_toml(text)}" for name, text in settings.items())
            lines.append(f"settings = {{ {inner} }}")
    for listener in listeners:
        lines += ["", "[[listeners]]"] if lines else ["[[listeners]]"]
        lines += (f"{name} = {_toml(value)}" for name, value in listener.items())
    return "\n".join(lines)


def _toml(value: object) -> str:
    """Return a value as TOML: strings, numbers, booleans and lists are written as in JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)
