"""Subjects in Java's form. The names are Java's own answers; an interop test asks it for more."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.certificates.certificate_names import (
    ALTERNATIVE_NAMES_MAX,
    NAME_BYTES_MAX,
    alternative_hosts,
    alternative_uris,
)
from penstock.security.certificates.der import CertificateError
from penstock.security.certificates.distinguished_name import ATTRIBUTES_MAX, distinguished_name
from tests.security.certificates.certificate_samples import (
    BMP,
    COMMON_NAME,
    IA5,
    PRINTABLE,
    T61,
    UTF8,
    VISIBLE,
    Attribute,
    certificate_of,
    element,
    host,
    subject_of,
    text_subject,
    uri,
)

ORGANIZATION = "2.5.4.10"
UNIT = "2.5.4.11"
EMAIL = "1.2.840.113549.1.9.1"
DOMAIN = "0.9.2342.19200300.100.1.25"


def name_of(*names: list[Attribute]) -> str:
    return distinguished_name(certificate_of(subject_of(names)))


def common_name(text: str) -> str:
    return distinguished_name(certificate_of(text_subject(text)))


def test_the_last_part_is_first() -> None:
    assert (
        name_of(
            [("2.5.4.6", PRINTABLE, b"DE")],
            [(ORGANIZATION, UTF8, b"Example")],
            [(COMMON_NAME, UTF8, b"alice")],
        )
        == "CN=alice,O=Example,C=DE"
    )


def test_attributes_of_one_part_keep_their_order() -> None:
    assert (
        name_of([(UNIT, UTF8, b"b"), (COMMON_NAME, UTF8, b"a")], [(ORGANIZATION, UTF8, b"o")])
        == "O=o,OU=b+CN=a"
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a,b", "a\\,b"),
        ("a=b", "a\\=b"),
        ('+<>;"\\', '\\+\\<\\>\\;\\"\\\\'),
        ("#a#", "\\#a\\#"),
        (" a b ", "\\ a b\\ "),
        ("  ", "\\ \\ "),
        (" #", "\\ \\#"),
        ("", ""),
        ("é漢😀", "é漢😀"),
        ("\u00a0a", "\u00a0a"),
        ("a/b*?:@", "a/b*?:@"),
    ],
)
def test_characters_are_escaped(text: str, written: str) -> None:
    assert common_name(text) == f"CN={written}"


@pytest.mark.parametrize(
    ("attribute", "written"),
    [
        ((EMAIL, IA5, b"a@b"), "1.2.840.113549.1.9.1=#1603614062"),
        ((DOMAIN, IA5, b"example"), "DC=example"),
        ((COMMON_NAME, T61, b"alice"), "CN=alice"),
        ((COMMON_NAME, VISIBLE, b"alice"), "CN=#1a05616c696365"),
        ((COMMON_NAME, 0x02, b"\x05"), "CN=#020105"),
        (("2.5.4.5", PRINTABLE, b"7"), "2.5.4.5=#130137"),
        (("2.5.4.9", UTF8, b"Road 1"), "STREET=Road 1"),
        (("0.9.2342.19200300.100.1.1", UTF8, b"u"), "UID=u"),
    ],
)
def test_kinds_of_attributes(attribute: Attribute, written: str) -> None:
    assert name_of([attribute]) == written


@pytest.mark.parametrize("text", ["a\0b", "\0", "a\nb", "\ra", "a\x7f", "a\x85b", "a\u2028"])
def test_control_characters_are_refused(text: str) -> None:
    with pytest.raises(CertificateError, match=r"control character \(U\+"):
        common_name(text)


@pytest.mark.parametrize("tag", [UTF8, T61, BMP])
def test_texts_of_other_encodings_are_refused(tag: int) -> None:
    """Java replaces the bytes, so that two names look alike."""
    with pytest.raises(CertificateError, match="CN in the subject is not UTF-8"):
        name_of([(COMMON_NAME, tag, b"M\xfcller")])


def test_sizes_are_bounded() -> None:
    assert common_name("x" * (NAME_BYTES_MAX - 3))
    with pytest.raises(CertificateError, match=f"limit {NAME_BYTES_MAX}"):
        common_name("x" * (NAME_BYTES_MAX - 2))
    with pytest.raises(CertificateError, match=f"more than {ATTRIBUTES_MAX} attributes"):
        name_of(*[[(COMMON_NAME, UTF8, b"a")]] * (ATTRIBUTES_MAX + 1))


def test_a_certificate_without_a_subject() -> None:
    with pytest.raises(CertificateError, match="no subject"):
        name_of()


@pytest.mark.parametrize(
    "subject",
    [
        element(0x30, element(0x31, b"")),
        element(0x30, element(0x30, b"")),
        element(0x30, element(0x31, element(0x30, b""))),
        element(0x30, element(0x31, element(0x30, element(0x06, b"\x55\x04\x03")))),
        element(0x31, b""),
        element(0x0C, b"alice"),
    ],
)
def test_malformed_subjects(subject: bytes) -> None:
    with pytest.raises(CertificateError):
        distinguished_name(certificate_of(subject))


# --- Alternative names ---


def test_alternative_names() -> None:
    names = host("a.example") + uri("spiffe://example/a") + element(0x87, b"\x7f\0\0\1")
    certificate = certificate_of(text_subject("x"), names + host("b.example"))
    assert alternative_hosts(certificate) == ["a.example", "b.example"]
    assert alternative_uris(certificate) == ["spiffe://example/a"]
    assert alternative_uris(certificate_of(text_subject("x"))) == []


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\u00e9"])
def test_bad_alternative_names_are_refused(name: str) -> None:
    certificate = certificate_of(text_subject("x"), host(name))
    with pytest.raises(CertificateError):
        alternative_hosts(certificate)
    assert alternative_uris(certificate) == []


def test_alternative_names_are_bounded() -> None:
    certificate = certificate_of(text_subject("x"), host("a") * (ALTERNATIVE_NAMES_MAX + 1))
    with pytest.raises(CertificateError, match=f"more than {ALTERNATIVE_NAMES_MAX}"):
        alternative_hosts(certificate)


WHOLE = certificate_of(text_subject("alice"), host("a.example") + uri("spiffe://a"))


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=4))
def test_damaged_certificates_raise_one_error(place: int, noise: bytes) -> None:
    damaged = WHOLE[:place] + noise + WHOLE[place + len(noise) :]
    for read in (distinguished_name, alternative_hosts, alternative_uris):
        with contextlib.suppress(CertificateError):
            read(damaged)
        with contextlib.suppress(CertificateError):
            read(WHOLE[:place])
