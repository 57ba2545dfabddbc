"""The three layers of settings: file, environment, flags; each value checked (pure).

Guarantees: a layer has only valid values; every other value is a problem that names the setting,
the value, its source and a remedy. `core.settings.tree.config` decides which layer wins.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import TypeAdapter, ValidationError

from penstock.core.settings.listener_declarations import SECTION as LISTENERS
from penstock.core.settings.listener_declarations import NamedListener, read_listeners
from penstock.core.settings.pipe_declarations import SECTION as PIPES
from penstock.core.settings.pipe_declarations import PipeDeclaration, read_pipes
from penstock.core.settings.setting_names import (
    closest_keys,
    current_key,
    environment_name,
    key_of_variable,
    short_variables,
)
from penstock.core.settings.topic_declarations import SECTION, TopicDeclaration, read_declarations
from penstock.core.settings.tree import FIELDS, Settings

Layer = dict[str, tuple[object, str]]
"""A value and its source for each key of a layer."""

_FLAG_NAMES: Final = {
    "admin.enabled": "--no-admin",
    "admin.port": "--admin-port",
    "flush.mode": "--flush",
}
"""Flags whose name differs from their setting."""


@dataclass(slots=True)
class Findings:
    """Errors and notes; filled while layers are read."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong: set[str] = field(default_factory=set)
    """Keys whose value is a problem."""

    def take(
        self,
        key: str,
        check: Callable[[str, Any, str, list[str]], object],
        value: object,
        source: str,
    ) -> object:
        """Return the checked value; note the key if the value is wrong."""
        count = len(self.problems)
        checked_value = check(key, value, source, self.problems)
        if len(self.problems) > count:
            self.wrong.add(key)
        return checked_value


@dataclass(frozen=True, slots=True)
class Declared:
    """The arrays of a settings file."""

    topics: tuple[TopicDeclaration, ...] = ()
    listeners: tuple[NamedListener, ...] = ()
    pipes: tuple[PipeDeclaration, ...] = ()


def _nothing_declared() -> "tuple[Layer, Declared]":
    return {}, Declared()


def file_layer(toml_text: str, file_name: str, findings: Findings) -> tuple[Layer, Declared]:
    """Return the settings of a settings file, and its declared topics and listeners."""
    if not toml_text:
        return _nothing_declared()
    import tomllib  # needed only with a settings file

    try:
        return _read_file(toml_text, file_name, findings)
    except tomllib.TOMLDecodeError as error:
        findings.problems.append(_not_toml(toml_text, file_name, error))
    except (ValueError, RecursionError) as error:
        # Python's limits: it rejects integers of thousands of digits and deep nesting.
        findings.problems.append(
            f"{file_name} cannot be read: {error}. Correct the number that is too long or the "
            "value that is nested too deep, and check again."
        )
    return _nothing_declared()


def _read_file(toml_text: str, file_name: str, findings: Findings) -> tuple[Layer, Declared]:
    import tomllib

    from penstock.core.settings.toml_lines import key_lines, line_of

    document = tomllib.loads(toml_text)
    lines = key_lines(toml_text)
    problems = findings.problems
    topics: tuple[TopicDeclaration, ...] = ()
    if isinstance(entries := document.get(SECTION), list):
        del document[SECTION]
        topics = read_declarations(entries, lines, file_name, problems)
    listeners: tuple[NamedListener, ...] = ()
    if isinstance(entries := document.get(LISTENERS), list):
        del document[LISTENERS]
        listeners = read_listeners(entries, lines, file_name, problems, _kafka_remedy)
    pipes: tuple[PipeDeclaration, ...] = ()
    if isinstance(entries := document.get(PIPES), list):
        del document[PIPES]
        pipes = read_pipes(entries, lines, file_name, problems)
    layer: Layer = {}
    for given, value in _flattened(document):
        line = line_of(lines, given)
        source = file_name if line is None else f"{file_name} line {line}"
        _take(layer, given, value, source, findings)
    return layer, Declared(topics, listeners, pipes)


def _kafka_remedy(name: str) -> str | None:
    from penstock.core.settings.kafka_names import kafka_remedy  # only for an unknown name

    return kafka_remedy(name)


def environment_layer(environment: Mapping[str, str], findings: Findings) -> Layer:
    """Return the settings of the environment, converted from text."""
    layer: Layer = {}
    for name in sorted(environment):
        given = key_of_variable(name)
        if given is None:
            continue
        key, text = current_key(given), environment[name]
        source = f"environment variable {name}"
        if key not in FIELDS:
            remedies = [environment_name(found) for found in closest_keys(key)]
            findings.problems.append(_unknown(name, "environment", remedies))
            continue
        if key != given:
            findings.notes.append(f"{name} is an old name: set {environment_name(key)} instead.")
            if environment_name(key) in environment:
                continue
        layer[key] = (findings.take(key, checked_text, text, source), source)
    for name, key in short_variables(environment):
        if key in layer:
            findings.notes.append(f"{name} is not read, because {environment_name(key)} is set.")
            continue
        source = f"environment variable {name}"
        layer[key] = (findings.take(key, checked_text, environment[name], source), source)
        findings.notes.append(f"{name} is read as {environment_name(key)}.")
    return layer


def flag_layer(flags: Mapping[str, object], findings: Findings) -> Layer:
    """Return the settings of flags; an unset flag is None."""
    layer: Layer = {}
    for key, value in flags.items():
        if value is None:
            continue
        assert key in FIELDS, f"a flag for an unknown setting: {key}"
        source = f"flag {_FLAG_NAMES.get(key) or '--' + key.rpartition('.')[2].replace('_', '-')}"
        layer[key] = (findings.take(key, checked, value, source), source)
    return layer


def checked(key: str, value: object, source: str, problems: list[str]) -> object:
    """Return the value in the type of its setting; with a problem, the value unchanged."""
    try:
        # A list of a file is a tuple of the frozen tree.
        given = tuple(value) if isinstance(value, list) else value
        return _adapter(key).validate_python(given, strict=True)
    except ValidationError as error:
        problems.append(_wrong(key, value, source, error))
        return value


def checked_text(key: str, text: str, source: str, problems: list[str]) -> object:
    """Return the value as `checked` does, from text."""
    optional = FIELDS[key].default is None
    if optional and not text:
        return None
    try:
        if FIELDS[key].default == ():
            parts = [part.strip() for part in text.split(",")]
            return _adapter(key).validate_python(tuple(part for part in parts if part))
        return _adapter(key).validate_strings(text)
    except ValidationError as error:
        problems.append(_wrong(key, text, source, error))
        return text


def _take(layer: Layer, given: str, value: object, source: str, findings: Findings) -> None:
    """Add one value of a file to its layer."""
    key = current_key(given)
    if key not in FIELDS:
        findings.problems.append(_unknown(given, source, closest_keys(given)))
    elif key in layer:
        findings.problems.append(
            f"{key} is given twice, in {layer[key][1]} and in {source}. Remove one of them."
        )
    else:
        if key != given:
            findings.notes.append(f"{given} ({source}) is an old name: call it {key}.")
        layer[key] = (findings.take(key, checked, value, source), source)


def _flattened(document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                yield from _below(f"{name}.{inner}", inner_value)
            if not value and name not in Settings.model_fields and name != SECTION:
                yield name, value
        else:
            yield name, value


def _below(key: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield a value of a table; names of Kafka have more dots, and are tables in tables."""
    if isinstance(value, dict) and value and current_key(key) not in FIELDS:
        from penstock.core.settings.toml_lines import leaf_names

        yield from ((name, None) for name in leaf_names(key, value))
    else:
        yield key, value


def _not_toml(toml_text: str, file_name: str, error: ValueError) -> str:
    lines = [line.replace(" ", "") for line in toml_text.splitlines()]
    has_table = any(line.startswith(f"[{SECTION}]") for line in lines)
    if has_table and any(line.startswith(f"[[{SECTION}]]") for line in lines):
        return (
            f"{file_name} has both [{SECTION}], the old name of [topic_defaults], and "
            f"[[{SECTION}]]. Rename the first to [topic_defaults] and check again."
        )
    return f"{file_name} is not TOML: {error}"


def _adapter(key: str) -> TypeAdapter[Any]:
    setting = FIELDS[key]
    # The annotated type is created at run time, so a type checker cannot know it.
    annotated: Any = Annotated[setting.annotation, setting]
    return TypeAdapter(annotated)


def _wrong(key: str, value: object, source: str, error: ValidationError) -> str:
    reason = error.errors(include_url=False)[0]["msg"]
    reason = reason[:1].lower() + reason[1:]
    return f"{key} = {value!r} ({source}): {reason}. See `penstock config explain {key}`."


def _unknown(name: str, source: str, remedies: list[str]) -> str:
    """Return the problem without the value: it may be a password, which no setting has."""
    if name.partition(".")[0] in (LISTENERS, "listener[]"):
        return f"{name} ({source}): listeners are tables of an array. Write [[{LISTENERS}]]."
    of_kafka = _kafka_remedy(name)
    if of_kafka is not None:
        return f"{name} ({source}) is a name of Kafka. {of_kafka}"
    if remedies:
        remedy = f"Did you mean {' or '.join(remedies)}?"
    else:
        remedy = "`penstock config explain` lists all settings."
    return f"{name} ({source}) is not a setting. {remedy}"
