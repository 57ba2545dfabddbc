"""CRC-32C: the check value of its definition, any buffer, and continuation."""

from penstock.records.crc32c import checksum


def test_check_value() -> None:
    assert checksum(b"123456789") == 0xE3069283


def test_any_buffer_gives_the_same() -> None:
    data = bytes(range(256)) * 5
    assert checksum(bytearray(data)) == checksum(memoryview(data)) == checksum(data)


def test_continues_from_a_value() -> None:
    assert checksum(b"6789", checksum(b"12345")) == checksum(b"123456789")
