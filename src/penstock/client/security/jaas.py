"""Parses `sasl.jaas.config`, Kafka's setting for the login of a client (pure).

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

It accepts one entry: a login module of Kafka, the flag `required`, options, and a semicolon. Values
in quotes have the escapes of Java's StreamTokenizer, which Kafka uses: a backslash before a letter
of `abfnrtv` or before octal digits is a control character, before any other character that
character. An entry that Kafka reads in a surprising way is rejected instead: comments, an option
that is repeated, a quote that ends with its line.

Guarantees: a message never has a part of the text. A quote at a wrong place turns a password into
names and words, so even those are not shown; a message has the position instead. It does NOT load
classes: three login modules are known by their names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import ConfigError
from penstock.security.sasl_client import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.secret import Secret

JAAS_BYTES_MAX: Final = 16_384
"""A login with a long token as its password has a few KiB."""
SHADED_PREFIX: Final = "kafkashaded."
"""Databricks has Kafka's classes under this name."""
EXTENSION_PREFIX: Final = "extension_"
_PACKAGE: Final = "org.apache.kafka.common.security."
_FORM: Final = 'Use the form CLASS required name="value";'
_CLASS_SHOWN: Final = re.compile(r"(?:[A-Za-z_$][\w$]{0,63}\.){1,16}[A-Za-z_$][\w$]{0,63}Module")
"""A word that is a class for certain; any other word may be part of a password."""
_WORD: Final = re.compile(r"[A-Za-z0-9._$-]+")
_SPACE: Final = re.compile(r"[ \t\r\n\f]*")
_ESCAPES: Final[Mapping[str, str]] = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_OCTAL: Final = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")


@dataclass(frozen=True, slots=True)
class _Module:
    """A login module of Kafka."""

    mechanisms: tuple[str, ...]
    options: tuple[str, ...]
    has_extensions: bool = False


MODULES: Final[Mapping[str, _Module]] = {
    f"{_PACKAGE}plain.PlainLoginModule": _Module((PLAIN,), ("username", "password")),
    f"{_PACKAGE}scram.ScramLoginModule": _Module(
        (SCRAM_SHA_256, SCRAM_SHA_512), ("username", "password", "tokenauth")
    ),
    f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule": _Module(
        (OAUTHBEARER,), ("clientId", "clientSecret", "scope"), has_extensions=True
    ),
}


def parse_jaas(config: Secret, mechanism: str, setting: str) -> Mapping[str, Secret]:
    """Return the options of the entry; `setting` is the name for messages."""
    text = config.reveal()
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{setting} is not valid Unicode. Write it as UTF-8.") from None
    if size > JAAS_BYTES_MAX:
        raise ConfigError(f"{setting} is too long ({size} bytes, limit {JAAS_BYTES_MAX}). {_FORM}")
    scanner = _Scanner(text, setting)
    name = scanner.word("the class of a login module")
    module = _module(name, setting)
    if mechanism not in module.mechanisms:
        raise ConfigError(
            f"{setting} has {name.rpartition('.')[2]}, which does not fit the mechanism "
            f"{mechanism}. Set sasl.mechanism to {' or '.join(module.mechanisms)}, or change the "
            "login module."
        )
    position = scanner.position
    if scanner.word("the flag 'required'").lower() != "required":
        raise scanner.malformed("the flag 'required' is missing", position)
    options = _options(scanner, module)
    scanner.expect_end()
    return options


def _module(name: str, setting: str) -> _Module:
    module = MODULES.get(name.removeprefix(SHADED_PREFIX))
    if module is not None:
        return module
    known = ", ".join(known.rpartition(".")[2] for known in MODULES)
    if _CLASS_SHOWN.fullmatch(name):
        raise ConfigError(
            f"{setting} has the login module {name}, which is not supported. "
            f"Use one of Kafka's: {known}."
        )
    raise ConfigError(
        f"{setting} does not start with the class of a login module of Kafka ({known}). {_FORM}"
    )


def _options(scanner: "_Scanner", module: _Module) -> dict[str, Secret]:
    found: dict[str, Secret] = {}
    while not scanner.skip(";"):
        position = scanner.position
        name = scanner.word("an option or ';'")
        if name in found:
            raise scanner.malformed("an option is repeated", position)
        is_extension = module.has_extensions and name.startswith(EXTENSION_PREFIX)
        if name not in module.options and not is_extension:
            import difflib  # keeps the start of a broker fast

            close = difflib.get_close_matches(name, module.options, n=1, cutoff=0.7)
            question = f"; did you mean {close[0]!r}" if close else ""
            accepted = ", ".join(module.options)
            raise scanner.malformed(
                f"the option is unknown (accepted: {accepted}){question}", position
            )
        if not scanner.skip("="):
            raise scanner.malformed("'=' is missing after the name of an option")
        found[name] = Secret(scanner.value())
    return found


class _Scanner:
    """Reads the text from left to right. Errors have positions, counted from 1."""

    def __init__(self, text: str, setting: str) -> None:
        self._text = text
        self._setting = setting
        self._at = 0

    @property
    def position(self) -> int:
        """The position of the next token."""
        self._at = self._after_space()
        return self._at

    def malformed(self, problem: str, position: int | None = None) -> ConfigError:
        """Return the error for the text at a position."""
        at = self.position if position is None else position
        return ConfigError(
            f"{self._setting} is malformed at character {at + 1}: {problem}. {_FORM}"
        )

    def word(self, wanted: str) -> str:
        """Return the next word without quotes."""
        found = _WORD.match(self._text, self.position)
        if found is None:
            raise self.malformed(f"{wanted} is missing")
        self._at = found.end()
        return found[0]

    def skip(self, character: str) -> bool:
        """Step over this character; return False if another one is next."""
        if not self._text.startswith(character, self.position):
            return False
        self._at += 1
        return True

    def value(self) -> str:
        """Return the next value, in quotes or as a word."""
        quote = self._text[self.position : self.position + 1]
        if quote not in {'"', "'"}:
            return self.word("a value in quotes")
        return self._quoted(quote)

    def expect_end(self) -> None:
        """Raise `ConfigError` if text follows the entry."""
        if self.position != len(self._text):
            raise self.malformed("text follows the entry; only one entry is supported")

    def _quoted(self, quote: str) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == quote:
                return "".join(parts)
            if character in "\r\n":
                break
            parts.append(self._escape() if character == "\\" else character)
        raise self.malformed("the quote is not closed in its line", start)

    def _escape(self) -> str:
        octal = _OCTAL.match(self._text, self._at)
        if octal is not None:
            self._at = octal.end()
            return chr(int(octal[0], 8))
        character = self._text[self._at : self._at + 1]
        if character in {"\r", "\n"}:
            raise self.malformed("the quote is not closed in its line", self._at)
        self._at += 1
        return _ESCAPES.get(character, character)

    def _after_space(self) -> int:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        return found.end()
