"""The settings of a broker in a test, from the project and from the test (pure).

The defaults are memory unless a directory is named, a free port, and groups that start without a
delay. The project's lines override them, then the test's table, then its keywords. All are checked
like the settings of `penstock serve`, with the same messages.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core.errors import ConfigError
from penstock.core.settings.config import DEFAULT_SOURCE, BrokerConfig, load_settings
from penstock.core.settings.listener_declarations import SECTION as LISTENERS
from penstock.core.settings.setting_names import closest_keys
from penstock.core.settings.tree import FIELDS, Settings

LINES_SOURCE: Final = "penstock_settings"
KEYWORDS: Final = frozenset(
    {
        "admin_port",
        "host",
        "port",
        "data_dir",
        "node_id",
        "storage",
        "max_connections",
        "segment_size",
        "flush_mode",
        "auto_create_topics",
        "default_partitions",
        "metrics_port",
        "log_level",
        "enable_tls",
        "tls_cert",
        "tls_key",
        "tls_ca",
        "enable_acl",
        "acl_config",
        "enable_consumer_groups",
    }
)
"""The flat keywords of `BrokerConfig`; a test checks that they are equal."""


_DATA_DIR: Final = "node.data_dir"
_STORAGE: Final = "node.storage"


def names_data_dir(
    lines: Sequence[str], table: Mapping[str, object], keywords: Mapping[str, Any]
) -> bool:
    """Whether the project or the test names a data directory."""
    return "data_dir" in keywords or _DATA_DIR in _named(lines, table)


def _named(lines: Sequence[str], table: Mapping[str, object]) -> set[str]:
    """Return the settings in the project's lines or the test's table."""
    given = load_settings("\n".join(lines), {}, {}, LINES_SOURCE)
    chosen = {key for key, source in given.sources.items() if source != DEFAULT_SOURCE}
    return chosen | set(table)


def broker_settings(
    lines: Sequence[str], table: Mapping[str, object], keywords: Mapping[str, Any]
) -> Settings:
    """Return the settings, or raise `ConfigError` with every problem found."""
    for key in table:
        if key not in FIELDS:
            remedy = f"Did you mean {' or '.join(closest_keys(key)) or 'another'}?"
            raise ConfigError(f"{key} is not a setting. {remedy}")
    unknown = sorted(set(keywords) - KEYWORDS)
    if unknown:
        raise ConfigError(
            f"{unknown[0]} is not a keyword of penstock.BrokerConfig, which are "
            f"{', '.join(sorted(KEYWORDS))}. Any other setting goes into the table."
        )
    usual: dict[str, object] = {
        "listener.port": 0,
        "node.storage": "memory",
        "admin.enabled": False,
        "groups.initial_rebalance_delay_ms": 0,
    }
    named = _named(lines, table)
    if _DATA_DIR in named:
        usual[_STORAGE] = "disk"
    if any(line.replace(" ", "").startswith(f"[[{LISTENERS}]]") for line in lines):
        del usual["listener.port"]
    flags = {key: value for key, value in usual.items() if key not in named} | dict(table)
    tree = load_settings("\n".join(lines), {}, flags, LINES_SOURCE).settings
    if "data_dir" in keywords and "storage" not in keywords:
        return BrokerConfig(settings=tree, storage="disk", **keywords)
    return BrokerConfig(settings=tree, **keywords)


def start_groups_at_once(settings: Settings) -> Settings:
    """Return the settings with no delay before a group's first rebalance, unless they set one.

    With the default of 3 s a new group waits for more members. A test knows its members, and would
    wait that long for each group.
    """
    if "initial_rebalance_delay_ms" in settings.groups.model_fields_set:
        return settings
    groups = settings.groups.model_copy(update={"initial_rebalance_delay_ms": 0})
    return settings.model_copy(update={"groups": groups})


def with_ports(settings: Settings, ports: Mapping[str, int]) -> Settings:
    """Return the settings with the port of each listener, by its name."""
    if settings.listeners:
        fixed = tuple(
            one.model_copy(update={"port": ports[one.name]}) for one in settings.listeners
        )
        return settings.model_copy(update={"listeners": fixed})
    (port,) = ports.values()
    listener = settings.listener.model_copy(update={"port": port})
    return settings.model_copy(update={"listener": listener})
