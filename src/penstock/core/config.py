"""Settings: one typed frozen tree, loaded once at the edge from three layers.

A settings file in TOML is overridden by environment variables, and these by flags. The name of an
environment variable is `PENSTOCK_`, the section, two underscores and the key: `listener.port` is
`PENSTOCK_LISTENER__PORT`. Names without the two underscores are not settings and are left alone,
because Kubernetes gives every container of a cluster with a service named `penstock` variables
such as `PENSTOCK_PORT`.

Values of the file and of flags have the type that the setting has; text of the environment is
converted. Everything is checked before anything starts: unknown names, types, ranges, and
settings that contradict each other. All problems are reported together, each with the setting, the
value, where it came from and a remedy.

This module reads no file and no environment: whoever starts the program hands them in. It is not
the table of topic settings; those belong to a topic and are changed over the wire.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Final, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from penstock.core.errors import ConfigError
from penstock.core.settings import FIELDS, Settings, flat_values, settings_of

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
ENVIRONMENT_SEPARATOR: Final = "__"
DEFAULT_SOURCE: Final = "default"

_WILDCARD_HOSTS: Final = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104 (named to refuse them)


class BrokerConfig(Settings):
    """The same tree for whoever embeds a broker: the usual settings as flat keywords.

    `settings` gives the rest, for example a loaded tree; a flat keyword wins over it. Without both
    there is no admin port: a program that embeds a broker says what it opens.
    """

    def __init__(
        self,
        *,
        host: str | None = None,
        port: int | None = None,
        data_dir: str | PurePath | None = None,
        node_id: int | None = None,
        storage: Literal["disk", "memory"] | None = None,
        max_connections: int | None = None,
        segment_size: int | None = None,
        flush_mode: Literal["always", "interval", "os"] | None = None,
        auto_create_topics: bool | None = None,
        default_partitions: int | None = None,
        admin_port: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        base = Settings() if settings is None else settings
        values = flat_values(base)
        flat = {
            "listener.host": host,
            "listener.port": port,
            "node.data_dir": None if data_dir is None else str(data_dir),
            "node.id": node_id,
            "node.storage": storage,
            "listener.connections_max": max_connections,
            "topics.segment_bytes": segment_size,
            "flush.mode": flush_mode,
            "topics.auto_create": auto_create_topics,
            "topics.partitions_default": default_partitions,
            "admin.port": admin_port,
            "admin.enabled": None if settings and admin_port is None else admin_port is not None,
        }
        given = {key: value for key, value in flat.items() if value is not None}
        problems: list[str] = []
        for key, value in given.items():
            values[key] = _checked(key, value, f"BrokerConfig, {key}", problems)
        problems += _contradictions(values, dict.fromkeys(given, "BrokerConfig"))
        _raise_if_any(problems)
        tree = settings_of(values)
        super().__init__(**{name: getattr(tree, name) for name in Settings.model_fields})


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and for each key where its value came from."""

    settings: Settings
    sources: Mapping[str, str]

    def value(self, key: str) -> object:
        """The value of one key such as `listener.port`."""
        return flat_values(self.settings)[key]


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What there is to say about one setting."""

    key: str
    type_text: str
    default: object
    unit: str
    kafka_name: str
    description: str
    environment_name: str


def environment_name(key: str) -> str:
    """The environment variable of a key: `listener.port` is `PENSTOCK_LISTENER__PORT`."""
    section, name = key.split(".", 1)
    return f"{ENVIRONMENT_PREFIX}{section.upper()}{ENVIRONMENT_SEPARATOR}{name.upper()}"


def describe_settings() -> tuple[SettingInfo, ...]:
    """Every setting in the order of the tree."""
    return tuple(
        SettingInfo(
            key=key,
            type_text=_type_text(field),
            default=field.default,
            unit=_extra(field, "unit"),
            kafka_name=_extra(field, "kafka"),
            description=field.description or "",
            environment_name=environment_name(key),
        )
        for key, field in FIELDS.items()
    )


def describe_sections() -> dict[str, str]:
    """The sections of the tree, each with its one line."""
    return {
        name: (section.annotation.__doc__ or "") if section.annotation else ""
        for name, section in Settings.model_fields.items()
    }


def closest_keys(name: str) -> list[str]:
    """Known keys that look like `name`, best first."""
    found = difflib.get_close_matches(name, FIELDS, n=3, cutoff=0.6)
    last_part = name.rpartition(".")[2]
    same_name = [key for key in FIELDS if key.rpartition(".")[2] == last_part]
    return same_name or found


def load_settings(
    toml_text: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    file_name: str = "settings file",
) -> Loaded:
    """Join the three layers into one tree; raise `ConfigError` with every problem found.

    `flags` maps keys such as `listener.port` to values; a flag that was not given is None.
    """
    problems: list[str] = []
    values: dict[str, object] = flat_values(Settings())
    sources: dict[str, str] = dict.fromkeys(FIELDS, DEFAULT_SOURCE)
    layers = [
        _file_values(toml_text or "", file_name, problems),
        _environment_values(environment, problems),
        _flag_values(flags, problems),
    ]
    for layer in layers:
        for key, (value, source) in layer.items():
            values[key] = value
            sources[key] = source
    if not problems:
        problems += _contradictions(values, sources)
    _raise_if_any(problems)
    return Loaded(settings=settings_of(values), sources=sources)


# --- The three layers. Each gives checked values with their sources, and adds its problems. ---

_Layer = dict[str, tuple[object, str]]


def _file_values(toml_text: str, file_name: str, problems: list[str]) -> _Layer:
    try:
        document = tomllib.loads(toml_text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{file_name} is not TOML: {error}. Correct the line and check again.")
        return {}
    lines = _line_numbers(toml_text)
    layer: _Layer = {}
    for key, value in _flattened(document):
        line = lines.get(key)
        source = file_name if line is None else f"{file_name} line {line}"
        if key in FIELDS:
            layer[key] = (_checked(key, value, source, problems), source)
        else:
            problems.append(_unknown(key, value, source, [*closest_keys(key)]))
    return layer


def _environment_values(environment: Mapping[str, str], problems: list[str]) -> _Layer:
    layer: _Layer = {}
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX) or ENVIRONMENT_SEPARATOR not in name:
            continue
        section, _, last = name.removeprefix(ENVIRONMENT_PREFIX).partition(ENVIRONMENT_SEPARATOR)
        key = f"{section}.{last}".lower()
        source = f"environment variable {name}"
        text = environment[name]
        if key in FIELDS:
            layer[key] = (_checked_text(key, text, source, problems), source)
        else:
            remedies = [environment_name(found) for found in closest_keys(key)]
            problems.append(_unknown(name, text, "environment", remedies))
    return layer


_FLAG_NAMES: Final = {
    "admin.enabled": "--no-admin",
    "admin.port": "--admin-port",
    "flush.mode": "--flush",
}
"""Flags that are not called like their setting."""


def _flag_values(flags: Mapping[str, object], problems: list[str]) -> _Layer:
    layer: _Layer = {}
    for key, value in flags.items():
        if value is None:
            continue
        assert key in FIELDS, f"a flag for an unknown setting: {key}"
        source = f"flag {_FLAG_NAMES.get(key) or '--' + key.rpartition('.')[2].replace('_', '-')}"
        layer[key] = (_checked(key, value, source, problems), source)
    return layer


def _flattened(document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict) and (value or name not in Settings.model_fields):
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value
        elif not isinstance(value, dict):
            yield name, value


_HEADER = re.compile(r"^\s*\[\s*([A-Za-z0-9_.\"' -]+?)\s*\]")
_ASSIGNMENT = re.compile(r"^\s*([A-Za-z0-9_.\"' -]+?)\s*=")


def _line_numbers(toml_text: str) -> dict[str, int]:
    """Where each key is set. Only a hint for messages: an inline table has no line of its own."""
    section = ""
    lines: dict[str, int] = {}
    for number, line in enumerate(toml_text.splitlines(), start=1):
        if header := _HEADER.match(line):
            section = f"{header[1]}."
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault(f"{section}{assignment[1]}", number)
    return lines


# --- Checks ---


def _checked(key: str, value: object, source: str, problems: list[str]) -> object:
    """The value as its setting keeps it; with a problem, the value as it was."""
    try:
        return _adapter(key).validate_python(value, strict=True)
    except ValidationError as error:
        problems.append(_wrong(key, value, source, error))
        return value


def _checked_text(key: str, text: str, source: str, problems: list[str]) -> object:
    optional = FIELDS[key].default is None
    if optional and not text:
        return None
    try:
        return _adapter(key).validate_strings(text)
    except ValidationError as error:
        problems.append(_wrong(key, text, source, error))
        return text


def _adapter(key: str) -> TypeAdapter[Any]:
    field = FIELDS[key]
    # The annotated type is made at run time, so a type checker cannot know it.
    annotated: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotated)


def _contradictions(values: Mapping[str, object], sources: Mapping[str, str]) -> Iterator[str]:
    if values["listener.host"] in _WILDCARD_HOSTS and values["listener.advertised_host"] is None:
        source = sources.get("listener.host", DEFAULT_SOURCE)
        yield (
            f"listener.host = {values['listener.host']!r} ({source}) names no address that a "
            "client can connect to. Set listener.advertised_host to the name that clients use."
        )


def _wrong(key: str, value: object, source: str, error: ValidationError) -> str:
    reason = error.errors(include_url=False)[0]["msg"]
    reason = reason[:1].lower() + reason[1:]
    return f"{key} = {value!r} ({source}): {reason}. See `penstock config explain {key}`."


def _unknown(name: str, value: object, source: str, remedies: list[str]) -> str:
    if remedies:
        remedy = f"Did you mean {' or '.join(remedies)}?"
    else:
        remedy = "`penstock config explain` lists all settings."
    return f"{name} = {value!r} ({source}) is not a setting. {remedy}"


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        raise ConfigError("\n".join(problems))


def _extra(field: FieldInfo, name: str) -> str:
    extra = field.json_schema_extra
    return str(extra.get(name, "")) if isinstance(extra, dict) else ""


_TYPE_NAMES: Final = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
}


def _type_text(field: FieldInfo) -> str:
    annotation = field.annotation
    choices = getattr(annotation, "__args__", ())
    if not choices:
        assert annotation in _TYPE_NAMES
        return _TYPE_NAMES[annotation]
    if type(None) in choices:
        return f"{_TYPE_NAMES[choices[0]]}, may be unset"
    return " or ".join(f"`{choice}`" for choice in choices)
