"""The filter language of `GET /v1/{topic}?filter=...`: text to SQL with parameters (pure).

    filter      := conjunction ("or" conjunction)*
    conjunction := term ("and" term)*
    term        := "not" term | "(" filter ")" | field operator literal
                 | field "in" "(" literal ("," literal)* ")"
    field       := key | partition | offset | timestamp | $.json.path
    operator    := =  !=  <  <=  >  >=  ^= (begins with)
    literal     := number | "text" or 'text' | true | false | null

A comparison is true only for a value of the literal's type: `$.price > 10` does not match the text
"12". `!=` is the opposite of `=`, so it matches rows without the field. JSON `true` is 1.

Guarantees: only checked names become SQL, and all literals are parameters. Length, comparisons and
nesting are bounded before any SQL exists. It does NOT run queries.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError
from penstock.materialize.json_paths import match_path

FILTER_CHARACTERS_MAX: Final = 4_096
COMPARISONS_MAX: Final = 64
NESTING_MAX: Final = 16
INTEGER_MAX: Final = 2**63 - 1
_LAST_CHARACTER: Final = "\U0010ffff"

Literal = str | int | float | None

_FIELDS: Final = ("key", "partition", "offset", "timestamp")
_OPERATORS: Final = ("=", "!=", "<", "<=", ">", ">=", "^=")
_WORD: Final = re.compile(r"[A-Za-z_]+")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_SIGN: Final = re.compile(r"<=|>=|!=|\^=|=|<|>")
_DOUBLE_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SINGLE_QUOTED: Final = re.compile(r"'([^']*(?:''[^']*)*)'")
_SPACE: Final = re.compile(r"\s*")


class FilterError(InvalidRequestError):
    """A filter that is not in the language."""


class SqlFilter(NamedTuple):
    """A condition with its parameters."""

    sql: str
    parameters: tuple[Literal, ...]


EVERYTHING: Final = SqlFilter("1", ())


@dataclass(frozen=True, slots=True)
class _Field:
    sql: str


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Literal


_Token = _Field | _Constant | str


def parse_filter(text: str, columns: Mapping[str, str]) -> SqlFilter:
    """Return the condition of a filter; `columns` has the generated column of each JSON path."""
    if len(text) > FILTER_CHARACTERS_MAX:
        raise FilterError(
            f"the filter has {len(text)} characters, at most {FILTER_CHARACTERS_MAX}."
        )
    if not text.strip():
        return EVERYTHING
    parser = _Parser(_tokens(text, columns))
    sql = parser.disjunction(0)
    if parser.rest:
        raise _unexpected(parser.rest[-1])
    return SqlFilter(sql, tuple(parser.parameters))


class _Parser:
    """Recursive descent; the tokens are in reverse order."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.rest = tokens[::-1]
        self.parameters: list[Literal] = []
        self._comparisons = 0

    def disjunction(self, depth: int) -> str:
        terms = [self._conjunction(depth)]
        while self._skip("or"):
            terms.append(self._conjunction(depth))
        return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"

    def _conjunction(self, depth: int) -> str:
        terms = [self._term(depth)]
        while self._skip("and"):
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else f"({' AND '.join(terms)})"

    def _term(self, depth: int) -> str:
        if depth > NESTING_MAX:
            raise FilterError(f"the filter is nested deeper than {NESTING_MAX}.")
        if self._skip("not"):
            return f"NOT {self._term(depth + 1)}"
        if self._skip("("):
            inner = self.disjunction(depth + 1)
            self._expect(")")
            return f"({inner})"
        return self._comparison()

    def _comparison(self) -> str:
        field = self._next()
        if not isinstance(field, _Field):
            raise _unexpected(field)
        operator = self._next()
        if operator == "in":
            return self._membership(field)
        if operator not in _OPERATORS:
            raise _unexpected(operator)
        return self._compared(field, str(operator), self._literal())

    def _membership(self, field: _Field) -> str:
        self._expect("(")
        terms = [self._compared(field, "=", self._literal())]
        while self._skip(","):
            terms.append(self._compared(field, "=", self._literal()))
        self._expect(")")
        return f"({' OR '.join(terms)})"

    def _compared(self, field: _Field, operator: str, value: Literal) -> str:
        self._comparisons += 1
        if self._comparisons > COMPARISONS_MAX:
            raise FilterError(f"the filter has more than {COMPARISONS_MAX} comparisons.")
        if operator == "!=":
            return f"NOT {self._compared(field, '=', value)}"
        sql = field.sql
        if value is None:
            if operator != "=":
                raise FilterError(f"null allows only = and !=, not {operator}.")
            return f"({sql} IS NULL)"
        if operator == "^=":
            return self._prefix(sql, value)
        self.parameters.append(value)
        if isinstance(value, str):
            return f"(typeof({sql}) = 'text' AND {sql} {operator} ?)"
        return f"(typeof({sql}) IN ('integer', 'real') AND {sql} {operator} ?)"

    def _prefix(self, sql: str, value: Literal) -> str:
        """A range instead of a pattern, so that an index can be used."""
        if not isinstance(value, str) or not value:
            raise FilterError("^= needs a text that is not empty.")
        self.parameters.append(value)
        after = _after_prefix(value)
        if after is None:
            return f"(typeof({sql}) = 'text' AND {sql} >= ?)"
        self.parameters.append(after)
        return f"(typeof({sql}) = 'text' AND {sql} >= ? AND {sql} < ?)"

    def _literal(self) -> Literal:
        token = self._next()
        if not isinstance(token, _Constant):
            raise _unexpected(token)
        return token.value

    def _next(self) -> _Token:
        if not self.rest:
            raise FilterError("the filter ends too early.")
        return self.rest.pop()

    def _skip(self, word: str) -> bool:
        if self.rest and self.rest[-1] == word:
            self.rest.pop()
            return True
        return False

    def _expect(self, word: str) -> None:
        if not self._skip(word):
            raise FilterError(f"the filter needs {word!r} {_before(self.rest)}.")


def _tokens(text: str, columns: Mapping[str, str]) -> list[_Token]:
    tokens: list[_Token] = []
    place = _space_end(text, 0)
    while place < len(text):
        token, place = _token(text, place, columns)
        tokens.append(token)
        place = _space_end(text, place)
    return tokens


def _space_end(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()


def _token(text: str, place: int, columns: Mapping[str, str]) -> tuple[_Token, int]:
    if (path := match_path(text, place)) is not None:
        column = columns.get(path[0].text)
        sql = f"({path[0].expression})" if column is None else f'"{column}"'
        return _Field(sql), path[1]
    if text[place] in "(),":
        return text[place], place + 1
    if found := _SIGN.match(text, place):
        return found.group(), found.end()
    if found := _NUMBER.match(text, place):
        return _Constant(_number(found)), found.end()
    if found := _DOUBLE_QUOTED.match(text, place):
        return _Constant(_quoted(found.group())), found.end()
    if found := _SINGLE_QUOTED.match(text, place):
        return _Constant(found.group(1).replace("''", "'")), found.end()
    if found := _WORD.match(text, place):
        return _word(found.group()), found.end()
    raise FilterError(f"the filter has an unexpected character {text[place]!r} at {place + 1}.")


def _word(word: str) -> _Token:
    lower = word.lower()
    if lower in _FIELDS:
        return _Field(f'"{lower}"')
    if lower in ("and", "or", "not", "in"):
        return lower
    constants: dict[str, Literal] = {"true": 1, "false": 0, "null": None}
    if lower in constants:
        return _Constant(constants[lower])
    raise FilterError(
        f"the filter has an unknown word {word[:64]!r}.",
        hint="Fields are key, partition, offset, timestamp and JSON paths such as $.sku.",
    )


def _number(found: re.Match[str]) -> int | float:
    if found.group(1) is None and found.group(2) is None and len(found.group()) <= 20:
        value = int(found.group())
        if abs(value) <= INTEGER_MAX:
            return value
    return float(found.group())


def _quoted(text: str) -> str:
    try:
        value = json.loads(text)
        assert isinstance(value, str)
        value.encode()
    except ValueError:
        raise FilterError(f"{text[:64]} is not a JSON string.") from None
    return value


def _after_prefix(prefix: str) -> str | None:
    """Return the first text after all texts with this prefix; None when there is none."""
    shortened = prefix.rstrip(_LAST_CHARACTER)
    if not shortened:
        return None
    following = ord(shortened[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # surrogates are not characters
        following = 0xE000
    return shortened[:-1] + chr(following)


def _unexpected(token: _Token) -> FilterError:
    return FilterError(
        f"the filter has an unexpected part: {_shown(token)}.",
        hint='Write for example: $.price > 10 and key ^= "sku-"',
    )


def _before(rest: list[_Token]) -> str:
    return f"before {_shown(rest[-1])}" if rest else "at its end"


def _shown(token: _Token) -> str:
    if isinstance(token, _Field):
        return "a field"
    return repr(token.value)[:64] if isinstance(token, _Constant) else repr(token)
