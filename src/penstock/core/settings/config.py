"""Settings: one typed frozen tree, merged from three layers.

Environment variables override a settings file in TOML, and flags override both. The name of an
environment variable is `PENSTOCK_`, the section, two underscores and the key: `listener.port` is
`PENSTOCK_LISTENER__PORT`. Names without the two underscores are not settings and are ignored: if a
Kubernetes cluster has a service named `penstock`, every container gets variables such as
`PENSTOCK_PORT`.

Values of the file and of flags have the setting's type; text of the environment is converted.
Everything is checked before the start: unknown names, types, ranges, declared topics, and settings
that contradict each other. All problems are reported together, each with the setting, the value,
its source and a remedy.

This module reads no file and no environment: the caller passes them in. It is not the table of
topic settings; those belong to a topic and are changed over the wire.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal, get_args

from pydantic.fields import FieldInfo

from penstock.core.errors import ConfigError
from penstock.core.settings.contradictions import contradictions
from penstock.core.settings.embedding_keywords import (
    MOVED,
    FilePath,
    TlsKeywords,
    acl_problems,
    keyword_problems,
    tls_listener,
)
from penstock.core.settings.listener_declarations import SECTION as LISTENERS
from penstock.core.settings.pipe_declarations import SECTION as PIPES
from penstock.core.settings.setting_layers import (
    Findings,
    checked,
    environment_layer,
    file_layer,
    flag_layer,
)
from penstock.core.settings.setting_names import environment_name, extra_text, is_live
from penstock.core.settings.topic_declarations import TopicCheck, TopicDeclaration, nothing_more
from penstock.core.settings.tree import FIELDS, Settings, flat_values, settings_of

DEFAULT_SOURCE: Final = "default"


class BrokerConfig(Settings):
    """The tree for programs that embed a broker: the usual settings as flat keywords.

    `settings` has the rest, for example a loaded tree; a flat keyword wins over it. Without both
    there is no admin port: a program that embeds a broker opens only the ports it asks for.

    `tls_cert` and `tls_key` switch TLS on; with `tls_ca` each client needs a certificate. Metrics
    are on the admin port: `metrics_port` is another name of `admin_port`. `acl_config` is the file
    of `security.acl_file`. Groups are always served.
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
        metrics_port: int | None = None,
        log_level: str | None = None,
        enable_tls: bool | None = None,
        tls_cert: FilePath | None = None,
        tls_key: FilePath | None = None,
        tls_ca: FilePath | None = None,
        enable_acl: bool | None = None,
        acl_config: FilePath | None = None,
        enable_consumer_groups: bool = True,
        settings: Settings | None = None,
    ) -> None:
        tls = TlsKeywords(enable_tls, tls_cert, tls_key, tls_ca)
        problems = list(
            keyword_problems(
                tls,
                admin_port,
                metrics_port,
                has_listeners=settings is not None and bool(settings.listeners),
                enable_consumer_groups=enable_consumer_groups,
            )
        )
        authorizer = "none" if settings is None else settings.security.authorizer
        problems += acl_problems(enable_acl, acl_config, authorizer)
        admin_port = metrics_port if admin_port is None else admin_port
        flat = {
            "listener.host": host,
            "listener.port": port,
            "node.data_dir": None if data_dir is None else str(data_dir),
            "node.id": node_id,
            "node.storage": storage,
            "listener.connections_max": max_connections,
            "topic_defaults.segment_bytes": segment_size,
            "flush.mode": flush_mode,
            "topic_defaults.auto_create": auto_create_topics,
            "topic_defaults.partitions_default": default_partitions,
            "admin.port": admin_port,
            "admin.enabled": None if settings and admin_port is None else admin_port is not None,
            "node.log_level": log_level,
            "security.authorizer": None if enable_acl is None else "acl" if enable_acl else "none",
            "security.acl_file": None if acl_config is None else str(acl_config),
        }
        given: dict[str, object] = {key: value for key, value in flat.items() if value is not None}
        tree = _embedded_tree(given, tls, settings, problems)
        super().__init__(**{name: getattr(tree, name) for name in Settings.model_fields})


def _embedded_tree(
    given: dict[str, object], tls: TlsKeywords, settings: Settings | None, problems: list[str]
) -> Settings:
    base = Settings() if settings is None else settings
    values = flat_values(base)
    for key, value in given.items():
        values[key] = checked(key, value, f"BrokerConfig, {key}", problems)
    _raise_if_any(problems)
    listeners = base.listeners
    if tls.is_on:
        listeners = (tls_listener(tls, values),)
        for key in MOVED:
            given.pop(key, None)
            values[key] = FIELDS[key].default
    # Without a tree only passed keywords count as set: `penstock.testing` reads that.
    chosen = {key: values[key] for key in given} if settings is None else values
    tree = settings_of(chosen, listeners, base.pipes)
    _raise_if_any(contradictions(tree, dict.fromkeys(given, "BrokerConfig")))
    return tree


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, the source of each value, and the declared topics."""

    settings: Settings
    sources: Mapping[str, str]
    topics: tuple[TopicDeclaration, ...] = ()
    notes: tuple[str, ...] = ()
    """Messages for the user that are not errors, such as about an old name."""

    def value(self, key: str) -> object:
        """Return the value of one key such as `listener.port`."""
        return flat_values(self.settings)[key]


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The description of one setting."""

    key: str
    type_text: str
    range_text: str
    """The allowed values; empty when the type is enough."""
    default: object
    unit: str
    kafka_name: str
    description: str
    environment_name: str
    is_live: bool
    """Whether a running broker follows a change."""


def describe_settings() -> tuple[SettingInfo, ...]:
    """Return every setting in the order of the tree."""
    return tuple(
        SettingInfo(
            key=key,
            type_text=_type_text(field),
            range_text=_range_text(field),
            default=field.default,
            unit=extra_text(field, "unit"),
            kafka_name=extra_text(field, "kafka"),
            description=field.description or "",
            environment_name=environment_name(key),
            is_live=is_live(key),
        )
        for key, field in FIELDS.items()
    )


def describe_sections() -> dict[str, str]:
    """Return the sections of the tree, each with its one line."""
    return {
        name: (section.annotation.__doc__ or "") if section.annotation else ""
        for name, section in Settings.model_fields.items()
        if name not in (LISTENERS, PIPES)
    }


def load_settings(
    toml_text: str | None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    file_name: str = "settings file",
    *,
    check_topic: TopicCheck = nothing_more,
) -> Loaded:
    """Return one tree of the three layers; raise `ConfigError` with every problem found.

    `flags` maps keys such as `listener.port` to values; an unset flag is None. `check_topic` knows
    the rules for declared topics that this layer does not.
    """
    findings = Findings()
    values: dict[str, object] = flat_values(Settings())
    sources: dict[str, str] = dict.fromkeys(FIELDS, DEFAULT_SOURCE)
    of_file, declared = file_layer(toml_text or "", file_name, findings)
    of_environment = environment_layer(environment, findings)
    for layer in (of_file, of_environment, flag_layer(flags, findings)):
        for key, (value, source) in layer.items():
            values[key] = value
            sources[key] = source
    problems = findings.problems
    for topic in declared.topics:
        problems += (f"{topic.source}: {problem}" for problem in check_topic(topic))
    # A wrong value is a problem already, and the tree would refuse it: its default stands in.
    usable = {key: value for key, value in values.items() if key not in findings.wrong}
    settings = settings_of(usable, declared.listeners, declared.pipes)
    problems += contradictions(settings, sources)
    _raise_if_any(problems)
    return Loaded(settings, sources, declared.topics, tuple(findings.notes))


def _raise_if_any(problems: Iterable[str]) -> None:
    text = "\n".join(problems)
    if text:
        raise ConfigError(text)


_TYPE_NAMES: Final = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
}
_BOUNDS: Final = (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than"))
"""Attributes of a field's type metadata, and their words in messages."""


def _type_text(field: FieldInfo) -> str:
    annotation = field.annotation
    if field.default == ():
        return "list of texts; in the environment, separated by commas"
    choices = getattr(annotation, "__args__", ())
    if not choices:
        assert annotation in _TYPE_NAMES
        return _TYPE_NAMES[annotation]
    if type(None) in choices:
        return f"{_choice_text(choices[0])}, may be unset"
    return " or ".join(f"`{choice}`" for choice in choices)


def _choice_text(annotation: object) -> str:
    """Return the words for the values of a setting that may be unset."""
    if isinstance(annotation, type):
        return _TYPE_NAMES[annotation]
    return " or ".join(f"`{choice}`" for choice in get_args(annotation))


def _range_text(field: FieldInfo) -> str:
    said = [
        f"{words} {getattr(remark, name)}"
        for name, words in _BOUNDS
        for remark in field.metadata
        if getattr(remark, name, None) is not None
    ]
    return ", ".join(said)
