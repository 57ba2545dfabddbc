r"""Reads the text of a Java properties file, as Kafka's tools do with `--command-config` (pure).

Supported is the form of `java.util.Properties`: `name=value`, `name: value` or `name value`,
comments with `#` or `!`, a backslash at the end of a line, and escapes (`\n`, `\u00e9`). A name
that occurs twice is an error: Java uses the last one, and a user rarely means that. So is a line
without a separator: most often it belongs to a value of several lines, such as a key. Only ASCII is
accepted, because Java reads other bytes as Latin-1 and other programs as UTF-8: an escape is the
same for all. A text has at most `TEXT_CHARACTERS_MAX` characters. Messages contain line numbers and
the names of settings, never other texts: a line may be a password.
"""

import re
from collections.abc import Iterator
from typing import Final

from penstock.core.errors import ConfigError

TEXT_CHARACTERS_MAX: Final = 1_048_576
NAME_CHARACTERS_MAX: Final = 80

_SETTING: Final = re.compile(r"[a-z]+[0-9]*(?:[._-][a-z0-9]+)*")
_SPACE: Final = " \t\f"
_NAME: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)+")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the values by name; raise `ConfigError` with the line of the first error."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ConfigError(
            f"the file has {len(text)} characters, at most {TEXT_CHARACTERS_MAX} are allowed."
        )
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        if not line.isascii():
            raise ConfigError(
                f"line {number} has a character outside of ASCII, which Java reads in another way. "
                "Write it as an escape, such as \\u00e9."
            )
        name_end = _NAME.match(line)
        if name_end is None:
            raise ConfigError(f"line {number} has no name before its separator.")
        separator = _SEPARATOR.match(line, name_end.end())
        assert separator is not None
        if not separator.group():
            raise ConfigError(
                f"line {number} has no value. If it continues the line before, end that one with a "
                "backslash."
            )
        name = _unescaped(name_end.group(), number)
        if name in found:
            which = f"{name} is" if is_setting_name(name) else "a name is"
            raise ConfigError(f"line {number}: {which} set twice.")
        found[name] = _unescaped(line[separator.end() :], number)
    return found


def is_setting_name(name: str) -> bool:
    """Whether a name has the form of Kafka's settings, so that a message may show it.

    A line of a key or a password that was taken for a name does not.
    """
    return len(name) <= NAME_CHARACTERS_MAX and _SETTING.fullmatch(name) is not None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; a backslash at the end continues it."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        stripped = line.lstrip(_SPACE)
        if not parts:
            if not stripped or stripped[0] in "#!":
                continue
            begun = number
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if slashes % 2:
            parts.append(stripped[:-1])
            continue
        yield begun, "".join([*parts, stripped])
        parts.clear()
    if parts:
        yield begun, "".join(parts)


def _unescaped(text: str, number: int) -> str:
    def character(escape: re.Match[str]) -> str:
        code = escape.group(1)
        if code.startswith("u"):
            if len(code) != 5:
                raise ConfigError(f"line {number}: \\u needs four hexadecimal digits.")
            return chr(int(code[1:], 16))
        return _CONTROL.get(code, code)

    unescaped = _ESCAPE.sub(character, text)
    try:
        # Java writes a character outside of the basic plane as two escapes.
        return unescaped.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(f"line {number} has half of a character: \\ud800 to \\udfff.") from None
