"""Properties files, as Java reads them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.property_file import TEXT_CHARACTERS_MAX, parse_properties
from penstock.core.errors import ConfigError


def test_forms_of_java() -> None:
    text = (
        "# a comment\n! another\n\n  security.protocol = SASL_SSL\r\n"
        "sasl.mechanism:PLAIN\rclient.id penstock\n"
        'sasl.jaas.config=Module required \\\n    username="a" \\\n  password="b=c:d";\n'
        "empty=\nkey\\ with\\:signs = value\\twith \\u00e9\n# end \\\nlast = x \\\\\n"
        "wide=\\ud83d\\ude00\n"
    )
    assert parse_properties(text) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "client.id": "penstock",
        "sasl.jaas.config": 'Module required username="a" password="b=c:d";',
        "empty": "",
        "key with:signs": "value\twith é",
        "last": "x \\",
        "wide": "\U0001f600",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=1\na=2", "line 2: a is set twice"),
        ("=x", "line 1 has no name"),
        ("a=\\u12", "line 1: .* four hexadecimal digits"),
        ("a=1\nsecret", "line 2 has no value"),
        ("a=\u00e9", "line 1 has a character outside of ASCII"),
        ("a=\\ud800", "line 1 has half of a character"),
        ("Secret+/=1\nSecret+/=2", "line 2: a name is set twice"),
        ("x" * (TEXT_CHARACTERS_MAX + 1), "1048577 characters"),
    ],
)
def test_errors_name_the_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_properties(text)


def written(text: str) -> str:
    return "".join(f"\\u{ord(one):04x}" for one in text)


TEXTS = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=5))
def test_escaped_texts_are_read_as_they_were(settings: dict[str, str]) -> None:
    lines = (f"{written(name)}={written(value)}" for name, value in settings.items())
    assert parse_properties("\n".join(lines)) == settings


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        parse_properties(text)
