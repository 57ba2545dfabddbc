"""The lines of progress."""

from penstock.spark.progress.line import (
    REASON_CHARACTERS_MAX,
    ended_text,
    progress_text,
    query_label,
    reason_of,
)
from penstock.spark.progress.reading import read_progress
from tests.spark.progress.documents import RECORDED, progress, recorded, source


def test_the_line_of_a_recorded_query() -> None:
    found = read_progress(recorded("penstock_source")[2])
    assert progress_text("orders to noop", found) == (
        "orders to noop  batch 2  7.9 rows/s  1,272 ms  lag orders 0  offsets orders 0:30 1:20"
    )


def test_several_topics_and_an_unknown_lag() -> None:
    batch = progress(
        source(
            {("orders", 0): 1000, ("orders", 1): 980}, {("orders", 0): 3000, ("orders", 1): 980}
        ),
        source({("clicks", 0): 7}),
    )
    assert progress_text("daily", batch) == (
        "daily  batch 17  1,250 rows/s  240 ms  lag clicks unknown, orders 2,000"
        "  offsets clicks 0:7, orders 0:1000 1:980"
    )


def test_many_partitions_are_counted() -> None:
    places = {("orders", number): number for number in range(1_000)}
    text = progress_text("daily", progress(source(places, places)))
    assert text.endswith("offsets orders 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7 and 992 more")
    topics = {(f"topic-{number}", 0): 1 for number in range(7)}
    text = progress_text("daily", progress(source(topics, topics)))
    assert "topic-4 0 and 2 more  offsets" in text


def test_a_query_without_topics() -> None:
    batch = progress(rows_per_second=3.26, duration_ms=12_340)
    assert progress_text("rate", batch) == "rate  batch 17  3.3 rows/s  12.3 s"


def test_idle_and_lost() -> None:
    lost = {"skipped_offset_count": 1_200, "skipped_partition_count": 2}
    batch = progress(source({("a", 0): 5}, {("a", 0): 5}, **lost))
    assert progress_text("daily", batch, is_idle=True) == (
        "daily  batch 17  idle  240 ms  lag a 0  offsets a 0:5  lost 1,200 offsets in 2 partitions"
    )


def test_labels() -> None:
    assert query_label("6200e2ad-d4ba", None) == "6200e2ad"
    assert query_label("6200e2ad-d4ba", "daily") == "daily"
    assert query_label("6200e2ad-d4ba", "two\nlines\x1b[2J") == "two lines [2J"
    assert len(query_label("id", "x" * 500)) == 60


def test_the_end() -> None:
    assert ended_text("daily", 1, 1_234, None) == "daily  stopped after 1 batch, 1,234 rows"
    assert ended_text("daily", 2, 0, "a.b.SomeException: gone\n\tat c") == (
        "daily  failed after 2 batches, 0 rows: SomeException: gone"
    )


def test_the_reasons_of_recorded_failures() -> None:
    text = (RECORDED / "foreach_batch_failure.txt").read_text()
    assert reason_of(text) == "ValueError: no such thing"
    text = (RECORDED / "data_loss_failure.txt").read_text()
    assert reason_of(text) == (
        "DataLossError: records that this query has to read are gone, or are not the same any "
        "more: - offsets 30 to 39 of orders-0 were removed by retention or DeleteRecords before "
        "they were read; it begins at 40 now. Raise retention.ms or retention.bytes of the topic, "
        "or run the query more often. Or set failOnDataLoss to false to go on; then orders-0 is "
        "read from offset 40."
    )


def test_the_reason_of_chained_errors_is_the_last() -> None:
    text = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "a.py", line 1\n'
        "KeyError: 'x'\n"
        "\n"
        "During handling of the above exception, another exception occurred:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 2\n'
        "penstock.spark.errors.DataLossError: records 0 to 10 are gone\n"
        "\tat java.lang.Thread.run(Thread.java:840)\n"
    )
    assert reason_of(text) == "DataLossError: records 0 to 10 are gone"


def test_the_reason_of_an_error_in_java_is_not_that_there_was_one() -> None:
    text = (
        "An error occurred while calling o63.start.\n: java.io.IOException: Mkdirs failed\n\tat X"
    )
    assert reason_of(text) == "IOException: Mkdirs failed"
    assert reason_of("An error occurred while calling o63.start.").endswith("o63.start.")


def test_a_reason_is_bounded_and_there_is_always_one() -> None:
    assert len(reason_of("x" * 10_000)) == REASON_CHARACTERS_MAX + 1
    assert reason_of("  \n") == "the reason is not known"
    assert reason_of("Traceback (most recent call last):") == "Traceback (most recent call last):"
