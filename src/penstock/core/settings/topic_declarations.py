"""`[[topics]]` of a settings file: declared topics as plain values (pure).

    [[topics]]
    name = "orders"
    partitions = 12
    routing = "queue"
    buffer_size = 1_000
    max_message_size = 65_536
    settings = { "retention.ms" = 86_400_000 }

`routing`, `buffer_size` and `max_message_size` are short names of settings of the topic.

Guarantees: a returned declaration has a unique name, a number of partitions within the limits or
none, and settings as texts. Kafka's rules for names and settings are NOT checked here: the caller
passes that check. `cluster.declared_topics` carries out declarations.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.core.limits import DECLARED_TOPICS_MAX, PARTITIONS_PER_TOPIC_MAX

SECTION: Final = "topics"
ROUTING: Final = "penstock.routing"
BUFFER_SIZE: Final = "penstock.buffer.size"
ROUTINGS: Final = ("fanout", "queue")
BUFFER_SIZE_MAX: Final = 1_000_000
"""Records in flight to the subscribers of one topic."""

_SHORT_NAMES: Final = {
    "routing": ROUTING,
    "buffer_size": BUFFER_SIZE,
    "max_message_size": "max.message.bytes",
}
"""Keys of a declaration that are settings of the topic under another name."""
_SIZES: Final = {"buffer_size": BUFFER_SIZE_MAX, "max_message_size": 2**31 - 1}
"""The largest value of each size."""
_KEYS: Final = ("name", "partitions", *_SHORT_NAMES, "settings")


@dataclass(frozen=True, slots=True)
class TopicDeclaration:
    """One topic as a settings file declares it."""

    name: str
    partitions: int | None = None
    """None: the broker's default when the topic is created, and its present number afterwards."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By Kafka's names."""
    source: str = "settings file"
    """The place of the declaration, for messages."""


TopicCheck = Callable[[TopicDeclaration], Iterable[str]]
"""Returns the problems of a declaration beyond its form."""


def nothing_more(_: TopicDeclaration) -> Iterable[str]:
    """Return no problems: the check of a caller without rules for topics."""
    return ()


def read_declarations(
    entries: list[object], lines: Mapping[str, int], file_name: str, problems: list[str]
) -> tuple[TopicDeclaration, ...]:
    """Return the valid declarations; add the errors of the others to `problems`."""
    if len(entries) > DECLARED_TOPICS_MAX:
        problems.append(
            f"{file_name} declares {len(entries)} topics, more than {DECLARED_TOPICS_MAX}. Create "
            "the rest with `penstock topic create`."
        )
        return ()
    declared: dict[str, TopicDeclaration] = {}
    for index, entry in enumerate(entries):
        one = _Entry(f"{SECTION}[{index}]", lines, file_name)
        found: list[str] = []
        declaration = one.read(entry, found)
        if declaration is not None and declaration.name in declared:
            first = declared[declaration.name].source
            found.append(
                f"{one.where('name')}: the topic {declaration.name!r} is declared twice, first in "
                f"{first}. Remove one of them."
            )
        elif declaration is not None and not found:
            declared[declaration.name] = declaration
        problems += found
    return tuple(declared.values())


class _Entry:
    """Reads one table of the array."""

    def __init__(self, key: str, lines: Mapping[str, int], file_name: str) -> None:
        self._key = key
        self._lines = lines
        self._file_name = file_name

    def where(self, name: str = "") -> str:
        """Return the file and line of one of the keys."""
        from penstock.core.settings.toml_lines import line_of  # only with declared topics

        line = line_of(self._lines, f"{self._key}.{name}" if name else self._key)
        return self._file_name if line is None else f"{self._file_name} line {line}"

    def read(self, entry: object, problems: list[str]) -> TopicDeclaration | None:
        """Return the declaration, or None if it has no valid name."""
        if not isinstance(entry, dict):
            problems.append(f"{self.where()}: a topic is declared as a table, not as {entry!r}.")
            return None
        problems += self._unknown_keys(entry)
        partitions = entry.get("partitions")
        if partitions is not None and not _is_number(partitions, PARTITIONS_PER_TOPIC_MAX):
            problems.append(
                f"{self.where('partitions')}: partitions = {partitions!r} is not a whole number "
                f"from 1 to {PARTITIONS_PER_TOPIC_MAX}."
            )
            partitions = None
        settings = self._settings(entry.get("settings", {}), problems)
        problems += self._take_short_names(entry, settings)
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            problems.append(
                f'{self.where("name")}: a declared topic needs a name, such as name = "orders".'
            )
            return None
        return TopicDeclaration(name, partitions, settings, self.where())

    def _unknown_keys(self, entry: Mapping[str, object]) -> Iterator[str]:
        for key in entry:
            if key not in _KEYS:
                import difflib

                close = difflib.get_close_matches(key, _KEYS, n=1)
                known = f"Did you mean {close[0]}?" if close else f"There are {', '.join(_KEYS)}."
                yield f"{self.where(key)}: {key!r} is nothing that a topic can declare. {known}"

    def _take_short_names(
        self, entry: Mapping[str, object], settings: dict[str, str]
    ) -> Iterator[str]:
        """Add the settings that have short names; yield the problems of their values."""
        for key, setting in _SHORT_NAMES.items():
            if key not in entry:
                continue
            value = entry[key]
            if setting in settings:
                yield (
                    f"{self.where(key)}: {key} and the setting {setting} are the same. Remove one "
                    "of them."
                )
            elif key in _SIZES and not _is_number(value, _SIZES[key]):
                yield (
                    f"{self.where(key)}: {key} = {value!r} is not a whole number from 1 to "
                    f"{_SIZES[key]}."
                )
            elif key == "routing" and value not in ROUTINGS:
                yield (
                    f'{self.where(key)}: routing = {value!r} does not exist. Use "fanout" or '
                    '"queue".'
                )
            else:
                settings[setting] = str(value)

    def _settings(self, table: object, problems: list[str]) -> dict[str, str]:
        if not isinstance(table, dict):
            problems.append(f"{self.where('settings')}: settings are a table, not {table!r}.")
            return {}
        texts: dict[str, str] = {}
        for name, value in _flattened(table):
            text = _text(value)
            if text is None:
                problems.append(
                    f"{self.where(f'settings.{name}')}: {name} = {value!r} is not a text, a "
                    "number, true, false or a list of texts."
                )
            else:
                texts[name] = text
        return texts


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _flattened(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield settings by name: TOML parses `retention.ms = 1` without quotes as nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return None
