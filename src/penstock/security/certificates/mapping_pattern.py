r"""Translates the regular expression of a mapping rule from Java's language to RE2's (pure).

Rules are written for Apache Kafka, whose regular expressions are Java's. RE2 runs in time linear in
its input, so no certificate can stop the broker with a rule, and it decides as Java does for the
expressions that both have. Guarantees:

- an expression that is accepted means the same as in Java, for names without control characters;
- anything else is a `ConfigError` that names the part: back references, look-around, possessive
  quantifiers, flags, classes in classes, and the escapes of letters except `\d`, `\w`, `\s`,
  these in capitals, `\A` and `\z`;
- a quantifier behind a group that can be empty is refused, such as in `(a*)*`. Java and RE2 fill
  the group differently, and Java needs exponential time for some of them;
- `repeated_groups` are groups that a quantifier repeats. Which of its matches such a group has is a
  matter of the library (Java keeps a match that it has taken back), so nothing may depend on it.
"""

from typing import Final, NamedTuple

from penstock.core.errors import ConfigError

REPETITIONS_MAX: Final = 1_000
"""RE2's limit of `{n}`."""
DEPTH_MAX: Final = 50
"""Groups within groups."""
_SETS: Final = "dDwWsS"
_QUANTIFIERS: Final = "*+?{"
_ANY: Final = "(?s:.)"


class TranslatedPattern(NamedTuple):
    """The expression for RE2, and its groups."""

    expression: str
    group_count: int
    repeated_groups: frozenset[int]


def translate(pattern: str) -> TranslatedPattern:
    """Return the expression for RE2; raise `ConfigError` if it could mean something else."""
    reader = _Reader(pattern)
    text, _ = reader.alternatives(0)
    if not reader.is_at_end:
        raise reader.refusal("a ')' has no '('")
    return TranslatedPattern(text, reader.group_count, frozenset(reader.repeated_groups))


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self.group_count = 0
        self.repeated_groups: set[int] = set()

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._pattern)

    def refusal(self, problem: str) -> ConfigError:
        return ConfigError(
            f"the pattern {self._pattern!r} of a mapping rule cannot be used: {problem}, at "
            f"character {self._position + 1}.",
            hint="Use letters, '.', classes, groups, '|', '^', '$' and simple quantifiers only.",
        )

    def _peek(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self._pattern[self._position : self._position + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self.refusal("it ends too early")
        self._position += 1
        return character

    def _skip(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._position):
            return False
        self._position += len(text)
        return True

    # Each of these returns the text for RE2, and whether it can match an empty text.

    def alternatives(self, depth: int) -> tuple[str, bool]:
        if depth > DEPTH_MAX:
            raise self.refusal(f"it has more than {DEPTH_MAX} groups within each other")
        branches = [self._sequence(depth)]
        while self._skip("|"):
            branches.append(self._sequence(depth))
        return "|".join(text for text, _ in branches), any(empty for _, empty in branches)

    def _sequence(self, depth: int) -> tuple[str, bool]:
        texts = []
        can_be_empty = True
        while self._peek() not in ("", "|", ")"):
            text, is_empty = self._quantified(depth)
            texts.append(text)
            can_be_empty = can_be_empty and is_empty
        return "".join(texts), can_be_empty

    def _quantified(self, depth: int) -> tuple[str, bool]:
        first_group = self.group_count + 1
        text, can_be_empty = self._atom(depth)
        if self._peek() not in _QUANTIFIERS or not self._peek():
            return text, can_be_empty
        if can_be_empty:
            raise self.refusal("a quantifier follows a part that can be empty")
        if self._peek() != "?":
            self.repeated_groups.update(range(first_group, self.group_count + 1))
        quantifier, count_min = self._quantifier()
        if self._skip("?"):
            quantifier += "?"
        if self._peek() and self._peek() in _QUANTIFIERS:
            raise self.refusal("a quantifier follows a quantifier")
        return text + quantifier, count_min == 0

    def _quantifier(self) -> tuple[str, int]:
        character = self._next()
        if character != "{":
            return character, 1 if character == "+" else 0
        low = self._number()
        if self._skip("}"):
            return f"{{{low}}}", low
        if not self._skip(","):
            raise self.refusal("a '{' begins no quantifier; write '\\{' for the character")
        if self._skip("}"):
            return f"{{{low},}}", low
        high = self._number()
        if not self._skip("}") or high < low:
            raise self.refusal("a quantifier is not {n}, {n,} or {n,m}")
        return f"{{{low},{high}}}", low

    def _number(self) -> int:
        start = self._position
        while self._peek() and self._peek() in "0123456789":
            self._position += 1
        digits = self._pattern[start : self._position]
        if not digits or len(digits) > 4 or int(digits) > REPETITIONS_MAX:
            raise self.refusal(
                f"a '{{' begins no quantifier with numbers up to {REPETITIONS_MAX}; write '\\{{' "
                "for the character"
            )
        return int(digits)

    def _atom(self, depth: int) -> tuple[str, bool]:
        character = self._next()
        match character:
            case ".":
                return _ANY, False
            case "^":
                return r"\A", True
            case "$":
                return r"\z", True
            case "(":
                return self._group(depth)
            case "[":
                return self._class(), False
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                self._position -= 1
                raise self.refusal(f"nothing is before {character!r}")
        return _literal(character), False

    def _group(self, depth: int) -> tuple[str, bool]:
        if self._skip("?:"):
            start = "(?:"
        elif self._peek() == "?":
            raise self.refusal("only groups with '(' and '(?:' are supported")
        else:
            start = "("
            self.group_count += 1
        text, can_be_empty = self.alternatives(depth + 1)
        if not self._skip(")"):
            raise self.refusal("a '(' has no ')'")
        return f"{start}{text})", can_be_empty

    def _escape(self) -> tuple[str, bool]:
        character = self._next()
        if character in _SETS:
            return f"\\{character}", False
        if character in "Az":
            return f"\\{character}", True
        return self._escaped_literal(character), False

    def _escaped_literal(self, character: str) -> str:
        if character.isascii() and character.isalnum():
            self._position -= 1
            raise self.refusal(f"the escape '\\{character}' is not supported")
        return _literal(character)

    # --- Classes ---

    def _class(self) -> str:
        parts = ["[^" if self._skip("^") else "["]
        is_first = True
        while not self._skip("]"):
            parts.append(self._class_item(is_first=is_first))
            is_first = False
        if is_first:
            raise self.refusal("a class is empty; write '\\]' for the character")
        return "".join(parts) + "]"

    def _class_item(self, *, is_first: bool) -> str:
        low = self._class_character(is_first=is_first)
        if len(low) == 2:  # a set such as \d
            if self._peek() == "-" and not self._pattern.startswith("-]", self._position):
                raise self.refusal("a range begins with a set")
            return low
        if self._peek() != "-" or self._pattern.startswith("-]", self._position):
            return _literal(low)
        self._position += 1
        high = self._class_character(is_first=False)
        if len(high) == 2 or high < low:
            raise self.refusal("a range has no order")
        if self._peek() == "-" and not self._pattern.startswith("-]", self._position):
            raise self.refusal("a range follows a range; write '\\-' for the character")
        return f"{_literal(low)}-{_literal(high)}"

    def _class_character(self, *, is_first: bool) -> str:
        """Return one character, or a set as two."""
        character = self._next()
        if character == "\\":
            character = self._next()
            if character in _SETS:
                return f"\\{character}"
            self._escaped_literal(character)
            return character
        is_last = self._peek() == "]"
        if (
            character == "["
            or (character == "&" and self._peek() == "&")
            or (character == "-" and not is_first and not is_last)
            or (character == "]" and is_first)
        ):
            self._position -= 1
            raise self.refusal(f"a class has an unescaped {character!r}")
        return character


def _literal(character: str) -> str:
    if character.isascii() and not character.isalnum() and character != "_":
        return f"\\{character}"
    return character
