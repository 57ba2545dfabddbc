"""The start of a share group in a partition: Kafka's texts, and durations as Java parses them."""

import pytest

from penstock.cluster.configs.share_offset_reset import OffsetReset, parse_offset_reset


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("pt1h", 3_600_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT1,25S", 1_250),
        ("PT1.S", 1_000),
        ("PT1H-30M", 1_800_000),
        ("-PT-1S", 1_000),
        ("PT-1.5S", None),
        ("-P1D", None),
        ("P", None),
        ("PT", None),
        ("P1DT", None),
        ("P1W", None),
        ("1h", None),
        ("", None),
        ("PT1S ", None),
        ("P" + "9" * 17 + "D", None),
        ("P" + "9" * 30 + "D", None),
    ],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    expected = None if milliseconds is None else OffsetReset("by_duration", milliseconds)
    assert parse_offset_reset(f"by_duration:{text}") == expected


def test_words() -> None:
    assert parse_offset_reset("latest") == OffsetReset("latest")
    assert parse_offset_reset("earliest") == OffsetReset("earliest")
    for text in ("LATEST", "none", "by_duration", "", "earliest:PT1H"):
        assert parse_offset_reset(text) is None
