"""`PrincipalMapper`: from a client certificate to a principal, by Kafka's mapping rules (pure).

The rules are those of `ssl.principal.mapping.rules`, with Kafka's meaning: `RULE:pattern/new/[LU]`
and `DEFAULT`, separated by commas. The first rule whose pattern matches the whole name wins; its
matches are replaced, and `L` or `U` changes the case. `$1` is the first group; a number beyond the
groups is text. A name that no rule matches ends the connection. Guarantees:

- rules that would fail for each certificate in Kafka are refused at the start;
- a certificate costs time linear in its size (`mapping_pattern`);
- principals are not empty, have at most `NAME_BYTES_MAX` bytes and no control character.

The source is the subject (`DN`), as in Kafka, or, of ours, the alternative names: `SAN:URI` and
`SAN:DNS`. A certificate may have several of these; all that a rule matches must become the same
principal. With these sources and `DEFAULT` a certificate with two names is therefore refused.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from penstock.core.errors import ConfigError
from penstock.security.certificates.certificate_names import (
    alternative_hosts,
    alternative_uris,
    check_name,
)
from penstock.security.certificates.der import CertificateError
from penstock.security.certificates.distinguished_name import distinguished_name
from penstock.security.certificates.mapping_pattern import TranslatedPattern, translate
from penstock.security.principal import Principal, user

NameSource = Literal["DN", "SAN:URI", "SAN:DNS"]
DEFAULT_RULES: Final = "DEFAULT"
RULES_CHARACTERS_MAX: Final = 16_384
"""All rules together: hundreds of them."""
COMPILED_BYTES_MAX: Final = 8_388_608
"""Memory for one compiled pattern."""

_INT_MAX: Final = 2_147_483_647
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|\Z)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_LINE_ENDS: Final = re.compile("[\n\x0b\f\r\x1c-\x1e\x85\u2028\u2029]")
_REFERENCE: Final = re.compile(r"\$([0-9]+)")

Part = str | int
"""Text of a replacement, or the number of a group."""


class _Rule(NamedTuple):
    pattern: Any
    """The compiled pattern; RE2 has no types. None is `DEFAULT`."""
    replacement: tuple[Part, ...]
    case: str
    """`L`, `U` or empty."""

    def apply(self, name: str) -> str | None:
        """Return the new name; None if the pattern does not match the whole name."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self._replace_all(name)
        if self.case == "L":
            return result.lower()
        return result.upper() if self.case == "U" else result

    def _replace_all(self, name: str) -> str:
        """Replace each match, also an empty one behind another match, as Java does."""
        texts: list[str] = []
        copied = start = 0
        while start <= len(name):
            found = self.pattern.search(name, start)
            if found is None:
                break
            texts.append(name[copied : found.start()])
            texts.extend(
                part if isinstance(part, str) else found.group(part) or ""
                for part in self.replacement
            )
            copied = found.end()
            start = copied + (1 if found.start() == copied else 0)
        texts.append(name[copied:])
        return "".join(texts)


class PrincipalMapper:
    """Maps client certificates to principals."""

    def __init__(self, rules: str = DEFAULT_RULES, source: NameSource = "DN") -> None:
        """Read the rules; raise `ConfigError` for rules that cannot be used."""
        self._rules = _read_rules(rules)
        self._source = source

    def principal(self, certificate: bytes) -> Principal:
        """Return the principal of a certificate in DER; raise `CertificateError` if it has none."""
        match self._source:
            case "DN":
                return user(self.name_of(distinguished_name(certificate)))
            case "SAN:URI":
                names = alternative_uris(certificate)
            case "SAN:DNS":
                names = alternative_hosts(certificate)
        return user(self._common_name(names))

    def name_of(self, name: str) -> str:
        """Return the principal's name for a name of a certificate."""
        found = self._mapped(check_name(name))
        if found is None:
            raise CertificateError(f"no mapping rule matches the name {name!r} of the certificate")
        return found

    def _common_name(self, names: Sequence[str]) -> str:
        if not names:
            raise CertificateError(f"the certificate has no name of the kind {self._source}")
        found = {mapped for name in names if (mapped := self._mapped(name)) is not None}
        if not found:
            raise CertificateError(
                f"no mapping rule matches one of the {len(names)} names ({self._source}) of the "
                f"certificate; the first is {names[0]!r}"
            )
        if len(found) > 1:
            raise CertificateError(
                f"the names ({self._source}) of the certificate stand for {len(found)} principals; "
                f"two of them are {', '.join(map(repr, sorted(found)[:2]))}"
            )
        return found.pop()

    def _mapped(self, name: str) -> str | None:
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                if not found:
                    raise CertificateError(
                        f"a mapping rule changes the name {name!r} of the certificate to nothing"
                    )
                return check_name(found)
        return None


# --- Reading rules ---


def _read_rules(text: str) -> list[_Rule]:
    if len(text) > RULES_CHARACTERS_MAX:
        raise ConfigError(
            f"the mapping rules have {len(text)} characters (limit {RULES_CHARACTERS_MAX})."
        )
    text = text.strip("".join(map(chr, range(33))))
    if _LINE_ENDS.search(text):
        raise ConfigError("the mapping rules have several lines.", hint="Write one line.")
    rules = [rule for found in _SPLITTER.finditer(text) if (rule := _read_rule(found[1]))]
    if not rules:
        raise ConfigError(
            "the mapping rules are empty, so no certificate would be accepted.",
            hint="Write DEFAULT for the subject itself.",
        )
    return rules


def _read_rule(text: str) -> _Rule | None:
    """Return one rule; None for an empty text between two commas."""
    found = _PARSER.match(text)
    assert found is not None, "the last alternative matches everything"
    if found.end() != len(text):
        raise ConfigError(
            f"the mapping rule {text!r} is invalid: {text[found.end() :]!r} is not expected.",
            hint="Write DEFAULT, or RULE:pattern/replacement/ with L or U at its end.",
        )
    is_default, pattern, replacement, case = found[1], found[2], found[3], found[4]
    if is_default is not None:
        return _Rule(None, (), "")
    if pattern is None:
        return None
    translated = translate(pattern)
    parts = _read_replacement(replacement, translated.group_count)
    repeated = translated.repeated_groups.intersection(
        part for part in parts if isinstance(part, int)
    )
    if repeated:
        raise ConfigError(
            f"the mapping rule {text!r} uses ${min(repeated)}, a group that a quantifier repeats: "
            "its value depends on the library.",
            hint="Put the group around the quantifier, such as ((?:a|b)*) instead of (a|b)*.",
        )
    return _Rule(_compiled(pattern, translated), parts, case)


def _compiled(pattern: str, translated: TranslatedPattern) -> Any:  # noqa: ANN401 (has no types)
    import re2  # not for brokers without rules

    options = re2.Options()
    options.max_mem = COMPILED_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(translated.expression, options)
    except re2.error:
        raise ConfigError(
            f"the pattern {pattern!r} of a mapping rule is too large.", hint="Write two rules."
        ) from None


def _read_replacement(text: str, group_count: int) -> tuple[Part, ...]:
    """Return the parts of a replacement, in Java's language after Kafka's change of it."""
    value = _with_literal_references(text, group_count)
    parts: list[Part] = []
    position = 0
    while position < len(value):
        character = value[position]
        position += 1
        if character not in "\\$":
            parts.append(character)
        elif position == len(value):
            raise _bad_replacement(text, f"nothing follows the {character!r} at its end")
        elif character == "\\":
            parts.append(value[position])
            position += 1
        else:
            number, position = _read_reference(value, position, group_count)
            if number is None or number > group_count:
                raise _bad_replacement(
                    text, f"a '$' names no group, and the pattern has {group_count}"
                )
            parts.append(number)
    return tuple(parts)


def _read_reference(value: str, position: int, group_count: int) -> tuple[int | None, int]:
    """Return the number behind a '$' and the position after it: as many digits as are a group."""
    if value[position] not in "0123456789":
        return None, position
    number = int(value[position])
    position += 1
    while position < len(value) and value[position] in "0123456789":
        longer = 10 * number + int(value[position])
        if longer > group_count:
            break
        number = longer
        position += 1
    return number, position


def _with_literal_references(text: str, group_count: int) -> str:
    """Put a backslash before references beyond the groups, where Kafka puts it.

    Kafka uses the positions of the original text although each backslash moves the rest. So a
    second such reference becomes something else, which the caller may have to refuse.
    """
    if group_count == 0:
        return text
    value = text
    for found in _REFERENCE.finditer(text):
        if found[1].startswith("0"):
            continue
        number = int(found[1][:12])
        if len(found[1]) > 12 or number > _INT_MAX:
            raise _bad_replacement(text, "a number behind a '$' is too large")
        while number > group_count and number >= 10:
            number //= 10
        if number > group_count:
            value = f"{value[: found.start()]}\\{value[found.start() :]}"
    return value


def _bad_replacement(text: str, problem: str) -> ConfigError:
    return ConfigError(
        f"the replacement {text!r} of a mapping rule is invalid: {problem}. "
        "Each certificate that matches would be refused.",
        hint="Write $1 for the first group of the pattern.",
    )
