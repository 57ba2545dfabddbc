"""The names of a setting: its key, its environment variables, Kafka's name and former names.

Pure lookups over the tree of settings. Guarantees: each name of a setting finds it, otherwise the
nearest names are found. It does NOT know the values of settings.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic.fields import FieldInfo

from penstock.core.settings.tree import FIELDS

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
ENVIRONMENT_SEPARATOR: Final = "__"
_FORMER_SECTIONS: Final = {"topics": "topic_defaults"}
"""`[topics]` was the table of defaults before topics could be declared as `[[topics]]`."""
EDGE_VARIABLES: Final = {
    "NODE_ID": ("registry.node_id", "node.id"),
    "REGISTRY_URL": ("registry.url",),
    "DATA_DIR": ("node.data_dir",),
    "BROKER_PORT": ("listener.port",),
    "HTTP_PORT": ("edge.http_port",),
}
"""Short names of the environment of a site. They are common words, so they are read only if the
environment names a registry. `NODE_ID` is a name, and the number of the broker too if it is one."""
_CLOSE_MAX: Final = 3
_CLOSE_CUTOFF: Final = 0.6


def environment_name(key: str) -> str:
    """Return the environment variable of a key: `listener.port` is `PENSTOCK_LISTENER__PORT`."""
    section, name = key.split(".", 1)
    return f"{ENVIRONMENT_PREFIX}{section.upper()}{ENVIRONMENT_SEPARATOR}{name.upper()}"


def key_of_variable(name: str) -> str | None:
    """Return the key of an environment variable; None when the variable is not a setting."""
    if not name.startswith(ENVIRONMENT_PREFIX) or ENVIRONMENT_SEPARATOR not in name:
        return None
    section, _, last = name.removeprefix(ENVIRONMENT_PREFIX).partition(ENVIRONMENT_SEPARATOR)
    return f"{section}.{last}".lower()


def short_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each short name of the environment that is read, with its key."""
    if not {"REGISTRY_URL", environment_name("registry.url")} & environment.keys():
        return
    for name, keys in EDGE_VARIABLES.items():
        text = environment.get(name, "")
        for key in keys:
            is_number = text.isascii() and text.isdigit()
            if text and key in FIELDS and (key != "node.id" or is_number):
                yield name, key


def short_variable(key: str) -> str:
    """Return the short name of a setting's environment variable; empty when it has none."""
    return next((name for name, keys in EDGE_VARIABLES.items() if key in keys), "")


def current_key(key: str) -> str:
    """Return the present name of a key that may be an old name."""
    section, dot, last = key.partition(".")
    renamed = f"{_FORMER_SECTIONS.get(section, section)}{dot}{last}"
    return renamed if renamed in FIELDS else key


def kafka_name(key: str) -> str:
    """Kafka's name of a setting; empty when Kafka has none."""
    return extra_text(FIELDS[key], "kafka")


def is_live(key: str) -> bool:
    """Return whether a running broker can apply a change of this setting."""
    extra = FIELDS[key].json_schema_extra
    return isinstance(extra, dict) and extra.get("live") is True


def find_keys(name: str) -> list[str]:
    """Return the settings that a key, a section, a variable or Kafka's name may mean."""
    key = current_key(key_of_variable(name.upper()) or name)
    if key in FIELDS:
        return [key]
    if name in EDGE_VARIABLES:
        return [key for key in EDGE_VARIABLES[name] if key in FIELDS]
    by_kafka = [key for key in FIELDS if kafka_name(key) == name]
    return by_kafka or [key for key in FIELDS if key.startswith(f"{name}.")]


def closest_keys(name: str) -> list[str]:
    """Return known keys similar to `name`, best first."""
    last_part = name.rpartition(".")[2]
    same_name = [key for key in FIELDS if key.rpartition(".")[2] == last_part]
    return same_name or _close(name, list(FIELDS))


def closest_names(name: str) -> list[str]:
    """Return names of settings similar to `name`, of the same kind of name."""
    if name.upper().startswith(ENVIRONMENT_PREFIX):
        return _close(name.upper(), [environment_name(key) for key in FIELDS])
    kafka_names = {kafka_name(key) for key in FIELDS} - {""}
    return _close(name, [*FIELDS, *sorted(kafka_names)]) or closest_keys(name)


def extra_text(field: FieldInfo, name: str) -> str:
    """Return a text of a field's extra data by name; empty when there is none."""
    extra = field.json_schema_extra
    return str(extra.get(name, "")) if isinstance(extra, dict) else ""


def _close(name: str, names: list[str]) -> list[str]:
    import difflib  # only for an unknown name

    return difflib.get_close_matches(name, names, n=_CLOSE_MAX, cutoff=_CLOSE_CUTOFF)
