"""`sasl.jaas.config` is read as Kafka reads it, or rejected without a word of its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.security.jaas import JAAS_BYTES_MAX, MODULES, parse_jaas
from penstock.core.errors import ConfigError
from penstock.security.secret import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CANARY = "canary"


def parse(text: str, mechanism: str = "PLAIN") -> dict[str, str]:
    options = parse_jaas(Secret(text), mechanism, "kafka.sasl.jaas.config")
    return {name: value.reveal() for name, value in options.items()}


def refusal(text: str, mechanism: str = "PLAIN") -> str:
    with pytest.raises(ConfigError) as error:
        parse(text, mechanism)
    message = str(error.value)
    assert message.startswith("kafka.sasl.jaas.config ")
    assert CANARY not in message
    return message


@pytest.mark.parametrize(
    ("text", "mechanism", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', "PLAIN", {"username": "u"}),
        (f"{PLAIN} required username='u' password='p';", "PLAIN", {"username": "u"}),
        (f"{PLAIN} required username=u password=p;", "PLAIN", {"username": "u"}),
        (f'\n {PLAIN}\n REQUIRED\tusername = "u"\r\n password= p ; \n', "PLAIN", {"username": "u"}),
        (f'kafkashaded.{PLAIN} required password="p";', "PLAIN", {}),
        (f'{SCRAM} required username="u" password="p";', "SCRAM-SHA-256", {"username": "u"}),
        (f'{SCRAM} required username="u"password="p";', "SCRAM-SHA-512", {"username": "u"}),
    ],
)
def test_forms(text: str, mechanism: str, options: dict[str, str]) -> None:
    assert parse(text, mechanism) == {**options, "password": "p"}


def test_options_of_a_bearer() -> None:
    text = f'{BEARER} required clientId="i" clientSecret="s" scope="a b" extension_tier="gold";'
    assert parse(text, "OAUTHBEARER") == {
        "clientId": "i",
        "clientSecret": "s",
        "scope": "a b",
        "extension_tier": "gold",
    }


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r'"a\"b"', 'a"b'),
        (r"'a\'b'", "a'b"),
        (r'"a' + "'" + r'b"', "a'b"),
        (r'"a\\b"', "a\\b"),
        (r'"a\db"', "adb"),
        (r'"\n\t\r\f\b\a\v"', "\n\t\r\f\b\a\v"),
        (r'"\101\7\477\400"', "A\x07'7 0"),
        ('"ä;=é//x/*y*/"', "ä;=é//x/*y*/"),
        ('""', ""),
    ],
)
def test_escapes_are_those_of_java(written: str, value: str) -> None:
    assert parse(f"{PLAIN} required password={written};") == {"password": value}


def quoted(value: str, quote: str) -> str:
    for raw, escape in (
        ("\\", "\\\\"),
        (quote, f"\\{quote}"),
        ("\n", "\\n"),
        ("\r", "\\r"),
    ):
        value = value.replace(raw, escape)
    return f"{quote}{value}{quote}"


VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(VALUES, VALUES, st.sampled_from("\"'"), st.sampled_from(["", " ", "\n\t"]))
def test_every_value_survives(username: str, password: str, quote: str, space: str) -> None:
    text = (
        f"{SCRAM} required username{space}={space}{quoted(username, quote)} "
        f"password={quoted(password, quote)}{space};{space}"
    )
    assert parse(text, "SCRAM-SHA-256") == {"username": username, "password": password}


@given(st.text(max_size=80), st.integers(0, 120), st.integers(0, 120))
def test_no_damage_leaks_a_part(noise: str, start: int, end: int) -> None:
    """The text is cut and filled at any place; the result is options or a `ConfigError`."""
    good = f'{PLAIN} required username="user" password="{CANARY}-{CANARY} {CANARY}=x";'
    text = good[:start] + noise + good[end:]
    try:
        parse(text)
    except ConfigError as error:
        assert CANARY not in str(error)  # noqa: PT017 (both outcomes are right)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "at character 1: the class of a login module is missing"),
        (CANARY, "does not start with the class of a login module"),
        (f"my.{CANARY}", "does not start with the class of a login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule, which is not"),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "Use one of Kafka's: Plain"),
        (PLAIN, "the flag 'required' is missing"),
        (f"{PLAIN} optional;", "the flag 'required' is missing"),
        (f'{PLAIN} username="{CANARY}";', "the flag 'required' is missing"),
        (f'{PLAIN} required password="{CANARY}"', "an option or ';' is missing"),
        (f'{PLAIN} required password="{CANARY};', "the quote is not closed"),
        (f'{PLAIN} required password="{CANARY}\\', "the quote is not closed"),
        (f'{PLAIN} required password="{CANARY}\n";', "the quote is not closed"),
        (f'{PLAIN} required password="{CANARY}\\\n";', "the quote is not closed"),
        (f"{PLAIN} required password=a {CANARY};", "the option is unknown"),
        (f"{PLAIN} required password=a {CANARY}=b;", "accepted: username, password"),
        (f"{PLAIN} required password=a/{CANARY};", "an option or ';' is missing"),
        (f"{PLAIN} required password=/{CANARY};", "a value in quotes is missing"),
        (f"{PLAIN} required password;", "'=' is missing"),
        (f"{PLAIN} required password=;", "a value in quotes is missing"),
        (f'{PLAIN} required "password"="{CANARY}";', "an option or ';' is missing"),
        (f"{PLAIN} required usernme=a;", "did you mean 'username'"),
        (f"{PLAIN} required password={CANARY} password={CANARY};", "an option is repeated"),
        (f"{PLAIN} required password=a; {CANARY}", "only one entry"),
        (f"{PLAIN} required password=a; {PLAIN} required password=a;", "only one entry"),
        (f"{PLAIN} required /* {CANARY} */ password=a;", "an option or ';' is missing"),
        (f"{PLAIN} required extension_{CANARY}=a;", "the option is unknown"),
        (f'{PLAIN} required password="{CANARY}\udc80";', "is not valid Unicode"),
        (f'{PLAIN} required password="{"x" * JAAS_BYTES_MAX}";', "is too long"),
        (f'{PLAIN} required password="{"ä" * (JAAS_BYTES_MAX // 2)}";', f"limit {JAAS_BYTES_MAX}"),
    ],
)
def test_hostile_texts(text: str, reported: str) -> None:
    assert reported in refusal(text)


def test_positions_are_counted_from_one() -> None:
    text = f"{PLAIN} required ?"
    assert f"at character {text.index('?') + 1}:" in refusal(text)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("module", MODULES)
def test_the_module_fits_the_mechanism(module: str, mechanism: str) -> None:
    text = f"{module} required;"
    if mechanism in MODULES[module].mechanisms:
        assert parse(text, mechanism) == {}
    else:
        assert f"does not fit the mechanism {mechanism}" in refusal(text, mechanism)


def test_the_largest_text_is_read_quickly() -> None:
    value = "\\\\" * (JAAS_BYTES_MAX // 2 - 100)
    assert len(parse(f'{PLAIN} required password="{value}";')["password"]) == len(value) // 2
