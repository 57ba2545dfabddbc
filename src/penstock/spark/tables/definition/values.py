"""One section of a definition: its keys, each with its type and bounds (pure).

Guarantees: every key of the section is read, or `require_nothing_left` names it, with the closest
known key. Every text, list and number is bounded. Durations are written as in Spark's triggers, `30
seconds`.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NoReturn, TypeVar

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import DefinitionError

TEXT_CHARACTERS_MAX: Final = 100_000
"""A schema of a thousand columns needs half of it."""
ENTRIES_MAX: Final = 1_000
"""Topics, properties, expectations: more is a mistake, or needs a pattern."""

_UNITS_MS: Final[Mapping[str, int]] = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_UNIT_NAMES: Final = "ms, seconds, minutes, hours, days or weeks"
_DURATION: Final = re.compile(r"([0-9]{1,15})\s*([a-z]+)")

Choice = TypeVar("Choice", bound=Enum)


class Section:
    """The keys of one table of the definition."""

    def __init__(self, where: str, name: str, values: object) -> None:
        self.where = where
        self.name = name
        if not isinstance(values, Mapping):
            raise DefinitionError(
                where, name, f"it is {_kind(values)}.", f"Write it as a table: [{name}]."
            )
        if len(values) > ENTRIES_MAX:
            raise DefinitionError(
                where, name, f"it has {len(values)} keys.", f"At most {ENTRIES_MAX} are read."
            )
        self._values: Mapping[str, object] = values
        self._asked: dict[str, None] = {}

    def fail(self, key: str, problem: str, remedy: str) -> NoReturn:
        """Raise the error for this key."""
        raise DefinitionError(self.where, self._path(key), problem, remedy)

    def has(self, key: str) -> bool:
        """Return whether the section has this key."""
        self._asked[key] = None
        return key in self._values

    def section(self, key: str) -> "Section":
        """Return a table in this section; an empty one if it is missing."""
        return Section(self.where, self._path(key), self._values[key] if self.has(key) else {})

    def sections(self, key: str) -> list["Section"]:
        """Return a list of tables."""
        given = self._values[key] if self.has(key) else []
        if not isinstance(given, list | tuple):
            self.fail(key, f"it is {_kind(given)}.", f"Write each as a table: [[{key}]].")
        self._require_few(key, len(given))
        return [
            Section(self.where, f"{self._path(key)}[{number}]", one)
            for number, one in enumerate(given)
        ]

    def text(self, key: str, example: str) -> str:
        """Return a required text."""
        found = self.optional_text(key, example)
        if found is None:
            self.fail(key, "it is missing.", f"Write {key} = {example}.")
        return found

    def optional_text(self, key: str, example: str) -> str | None:
        """Return a text that is not empty, or None if it is missing."""
        if not self.has(key):
            return None
        return self._text(key, self._values[key], f"Write {key} = {example}.")

    def texts(self, key: str, example: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
        """Return a list of different texts; empty if it is missing."""
        if not self.has(key):
            return ()
        given = self._values[key]
        remedy = f"Write {key} = {example}."
        if not isinstance(given, list | tuple):
            self.fail(key, f"it is {_kind(given)}, not a list.", remedy)
        self._require_few(key, len(given))
        found = tuple(self._text(key, one, remedy) for one in given)
        if not found and not may_be_empty:
            self.fail(key, "it is empty.", remedy)
        twice = [one for number, one in enumerate(found) if one in found[:number]]
        if twice:
            self.fail(key, f"{shown(twice[0])} is there twice.", "Write each once.")
        return found

    def is_text(self, key: str) -> bool:
        """Return whether the key has a text, where a list is allowed too."""
        return self.has(key) and isinstance(self._values[key], str)

    def properties(self, key: str, example: str) -> tuple[tuple[str, str], ...]:
        """Return names and texts, in the order of the names; numbers and booleans become text."""
        inner = self.section(key)
        found = []
        for name in sorted(inner._values):
            value = inner._values[name]
            if isinstance(value, bool):
                value = str(value).lower()
            elif isinstance(value, int):
                value = str(value)
            found.append((name, inner._text(name, value, f"Write {key} = {example}.")))
        return tuple(found)

    def choice(self, key: str, choices: type[Choice], default: Choice | None = None) -> Choice:
        """Return one of the allowed words."""
        words = {str(one.value): one for one in choices}
        remedy = f"Set one of {', '.join(words)}."
        if not self.has(key):
            if default is None:
                self.fail(key, "it is missing.", remedy)
            return default
        text = self._text(key, self._values[key], remedy)
        found = words.get(text.strip().lower())
        if found is None:
            meant = did_you_mean(text.strip().lower(), words)
            self.fail(key, f"{shown(text)} is not a choice.", f"{meant}{remedy}")
        return found

    def boolean(self, key: str, *, default: bool) -> bool:
        """Return `true` or `false`."""
        if not self.has(key):
            return default
        value = self._values[key]
        if not isinstance(value, bool):
            self.fail(key, f"it is {_kind(value)}.", "Write true or false, without quotes.")
        return value

    def integer(self, key: str, default: int, *, lowest: int, highest: int) -> int:
        """Return a whole number within bounds."""
        if not self.has(key):
            return default
        value = self._values[key]
        remedy = f"Write a whole number from {lowest} to {highest}."
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"it is {_kind(value)}.", remedy)
        if not lowest <= value <= highest:
            self.fail(key, f"{value} is out of range.", remedy)
        return value

    def share(self, key: str, default: float) -> float:
        """Return a number above 0 and up to 1."""
        if not self.has(key):
            return default
        value = self._values[key]
        remedy = "Write a number above 0 and up to 1, such as 0.05 for 5 %."
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"it is {_kind(value)}.", remedy)
        if not math.isfinite(value) or not 0 < value <= 1:
            self.fail(key, f"{value} is out of range.", remedy)
        return float(value)

    def duration_ms(
        self, key: str, default: int, *, lowest: int, highest: int, example: str
    ) -> int:
        """Return a time, such as `30 seconds`."""
        if not self.has(key):
            return default
        remedy = f'Write a number and one of {_UNIT_NAMES}: {key} = "{example}".'
        text = self._text(key, self._values[key], remedy)
        found = _DURATION.fullmatch(text.strip().lower())
        unit = found.group(2) if found else ""
        scale = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s"))
        if found is None or scale is None:
            self.fail(key, f"{shown(text)} is no time.", remedy)
        value = int(found.group(1)) * scale
        if not lowest <= value <= highest:
            self.fail(
                key, f"{shown(text)} is out of range.", f"Set {lowest} ms to {highest // 1000} s."
            )
        return value

    def require_nothing_left(self) -> None:
        """Raise for a key that was not read."""
        for key in self._values:
            if key in self._asked:
                continue
            self.fail(
                str(key),
                "there is no such key.",
                did_you_mean(str(key), self._asked).rstrip()
                or f"Remove it; known here: {', '.join(self._asked)}.",
            )

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _text(self, key: str, value: object, remedy: str) -> str:
        if not isinstance(value, str):
            self.fail(key, f"it is {_kind(value)}, not a text.", remedy)
        if not value.strip():
            self.fail(key, "it is empty.", remedy)
        if len(value) > TEXT_CHARACTERS_MAX:
            self.fail(
                key,
                f"it has {len(value)} characters.",
                f"At most {TEXT_CHARACTERS_MAX} are read.",
            )
        return value

    def _require_few(self, key: str, count: int) -> None:
        if count > ENTRIES_MAX:
            self.fail(key, f"it has {count} entries.", f"At most {ENTRIES_MAX} are read.")


def did_you_mean(word: str, known: Iterable[str], text: str = "Did you mean '{}'? ") -> str:
    """Return a text with the closest known word; empty if no word is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return text.format(close[0]) if close else ""


def _kind(value: object) -> str:
    kinds: list[tuple[type, str]] = [
        (bool, "a boolean"),
        (int, "a number"),
        (float, "a number"),
        (str, "a text"),
        (list, "a list"),
        (tuple, "a list"),
        (dict, "a table"),
    ]
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")
