"""Sizes and times for people."""

from penstock.core.quantities import count_text, duration_text, number_text, size_text


def test_words_for_sizes_and_times() -> None:
    assert [size_text(one) for one in (5, 2_048, 5 * 2**40)] == ["5 B", "2.0 KiB", "5.0 TiB"]
    assert [duration_text(one) for one in (5, 1_500, 90_000, 200_000, 3 * 86_400_000)] == [
        "5 ms",
        "1.5 s",
        "90.0 s",
        "3 min",
        "3 days",
    ]
    assert [count_text(one, "row") for one in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]


def test_numbers_of_messages_have_no_exponent() -> None:
    assert [number_text(one) for one in (0, 1_000_000, 1e9, 86_400.0, 0.001, -2_500.5)] == [
        "0",
        "1,000,000",
        "1,000,000,000",
        "86,400",
        "0.001",
        "-2,500.5",
    ]
    assert [number_text(float(one)) for one in ("inf", "nan", "1e300")] == ["inf", "nan", "1e+300"]
