"""Patterns of topic names: `prices`, `promo.*`, `sales.{id}` (pure).

`*` stands for any text, also for none. `{id}` is the id of the node and `{region}` the value of its
label `region`. A pattern with a label that the node does not have is left out, and the same is true
for a value that cannot be part of a topic's name: a node cannot widen a pattern by its labels.
Matching is linear in the name for each `*`; there are no regular expressions of a peer.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

PATTERN_CHARACTERS_MAX: Final = 249
"""The longest name of a topic."""
PATTERN_STARS_MAX: Final = 4
"""Bounds the time of a match."""
PATTERNS_MAX: Final = 256
"""Patterns of one level in one direction."""

_PATTERN: Final = re.compile(r"(?:[A-Za-z0-9._*-]|\{[A-Za-z0-9][A-Za-z0-9._-]{0,62}\})+")
_PLACE: Final = re.compile(r"\{([^}]*)\}")
_NAME_PART: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def pattern_problem(pattern: str) -> str | None:
    """Return why a text is not a pattern; None if it is one."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"has {len(pattern)} characters (at most {PATTERN_CHARACTERS_MAX})"
    if _PATTERN.fullmatch(pattern) is None:
        return "has other characters than letters, digits, '.', '_', '-', '*' and {label}"
    if pattern.count("*") > PATTERN_STARS_MAX:
        return f"has {pattern.count('*')} times '*' (at most {PATTERN_STARS_MAX})"
    return None


def expanded(patterns: Iterable[str], node_id: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the patterns of one node, without those whose labels it does not have."""
    values = {**labels, "id": node_id}
    found = []
    for pattern in patterns:
        names = _PLACE.findall(pattern)
        if all(_NAME_PART.fullmatch(values.get(name, "")) for name in names):
            text = _PLACE.sub(lambda place: values[place.group(1)], pattern)
            if len(text) <= PATTERN_CHARACTERS_MAX:
                found.append(text)
    return tuple(found)


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic belongs to an expanded pattern."""
    return fnmatchcase(topic, pattern)
