"""Differences between two outputs, and the exactness of the table of known ones."""

from tests.interop.tool_differences import Difference, judge
from tests.interop.tool_runner import Output
from tests.interop.tool_texts import lines_of

KNOWN = Difference("kafka-x", "why", (r"old \d+",), (r"new \d+",))


def test_equal_lines_are_no_difference() -> None:
    assert judge(["exit 0", "a"], ["exit 0", "a"], None) == ([], [])


def test_a_line_that_differs_is_told_with_its_side() -> None:
    assert judge(["a", "b"], ["a", "c"], None) == (["- b", "+ c"], [])
    assert judge(["a", "b"], ["b", "a"], None).unknown
    assert judge(["a"], ["a", "a"], None) == (["+ a"], [])


def test_a_known_difference_is_none() -> None:
    assert judge(["a", "old 1", "old 2"], ["a", "new 3"], KNOWN) == ([], [])


def test_a_known_difference_that_vanished_is_told() -> None:
    assert judge(["a"], ["a"], KNOWN) == ([], [r"- old \d+", r"+ new \d+"])
    assert judge(["a", "old 1"], ["a"], KNOWN) == ([], [r"+ new \d+"])


def test_a_known_difference_does_not_hide_another() -> None:
    assert judge(["old 1", "x"], ["new 1", "y"], KNOWN) == (["- x", "+ y"], [])


def test_what_no_two_runs_share_does_not_count() -> None:
    first = Output(0, "Topic: a\tTopicId: AoiVrXEJTO24QuSBQbC-Rw  at 127.0.0.1:9092\n", "")
    second = Output(0, "Topic: a TopicId: wv7xhIcXQUmn3bVLucpLjA at 127.0.0.1:29092\n", "")
    assert lines_of("kafka-topics", first, ()) == lines_of("kafka-topics", second, ())
    assert lines_of("kafka-topics", first, ()) == ("exit 0", "Topic: a TopicId: ID at ADDRESS")


def test_a_rate_does_not_count_whatever_its_digits_are() -> None:
    lines = {
        lines_of("x", Output(0, f'{{"sent":4,"avg_throughput":{rate}}}', ""), ())
        for rate in ("25.0", "25.641025641025642", "1.0E-4")
    }
    assert lines == {("exit 0", '{"sent":4,"avg_throughput":NUMBER}')}


def test_the_rest_counts() -> None:
    first = lines_of("kafka-topics", Output(0, "partitions 3", "x"), ())
    assert first != lines_of("kafka-topics", Output(1, "partitions 3", "x"), ())
    assert first != lines_of("kafka-topics", Output(0, "partitions 4", "x"), ())
    assert first != lines_of("kafka-topics", Output(0, "partitions 3", "y"), ())
    assert first != lines_of("kafka-topics", Output(0, "x", "partitions 3"), ())


def test_only_lists_of_groups_and_records_have_no_order() -> None:
    output, turned = Output(0, "b\na", ""), Output(0, "a\nb", "")
    groups = "kafka-groups --list"
    assert lines_of(groups, output, ()) == lines_of(groups, turned, ())
    assert lines_of("kafka-topics --list", output, ()) != lines_of(
        "kafka-topics --list", turned, ()
    )


def test_folders_of_a_run_do_not_count() -> None:
    assert lines_of("x", Output(0, "in /one/two", ""), ("/one/two",)) == ("exit 0", "in FOLDER")
