"""DER: what is read, and what is refused; random bytes never raise anything else."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.certificates.der import (
    SEQUENCE,
    CertificateError,
    elements,
    object_identifier,
    single,
)
from tests.security.certificates.certificate_samples import KINDS, element, identifier


def test_elements_are_read() -> None:
    data = element(0x02, b"\x05") + element(0x0C, b"x" * 300) + element(0x04, b"")
    found = list(elements(memoryview(data)))
    assert [(one.tag, bytes(one.content)) for one in found] == [
        (0x02, b"\x05"),
        (0x0C, b"x" * 300),
        (0x04, b""),
    ]
    assert b"".join(bytes(one.encoded) for one in found) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\x30",
        b"\x30\x01",
        b"\x30\x80\x00\x00",
        b"\x30\x81\x01\x00",
        b"\x30\x82\x00\x80" + bytes(128),
        b"\x30\x85\x01\x00\x00\x00\x00",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x81",
        b"\x1f\x81\x01\x00",
        b"\x30\x00\x30",
    ],
)
def test_other_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(CertificateError, match="malformed"):
        list(elements(memoryview(data)))


def test_one_element_is_expected() -> None:
    assert single(b"\x30\x00", SEQUENCE).tag == SEQUENCE
    for data in (b"", b"\x30\x00\x30\x00", b"\x31\x00"):
        with pytest.raises(CertificateError):
            single(data, SEQUENCE)


@pytest.mark.parametrize("kind", [*KINDS, "0.0", "1.39", "2.0", "2.5.29.17", f"2.25.{2**127}"])
def test_object_identifiers_are_read(kind: str) -> None:
    (found,) = elements(memoryview(identifier(kind)))
    assert object_identifier(found.content) == kind


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x55\x80\x01", b"\x55\x84", b"\xff" * 30])
def test_bad_object_identifiers_are_refused(content: bytes) -> None:
    with pytest.raises(CertificateError):
        object_identifier(memoryview(content))


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    with contextlib.suppress(CertificateError):
        for one in elements(memoryview(data)):
            with contextlib.suppress(CertificateError):
                object_identifier(one.content)
            with contextlib.suppress(CertificateError):
                list(one.children())
