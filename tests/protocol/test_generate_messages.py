"""The generator of `messages/`: deterministic, and the files in the repository are its output.

All files are compared by `tools/generate_messages.py --check` in `make check`; here one API with
everything in it represents them.
"""

from penstock.protocol.messages import describe_topic_partitions, fetch
from tools import generate_messages


def source_of(api_name: str) -> str:
    return next(
        generate_messages.module_source(name, messages)
        for name, messages in generate_messages.load_messages({api_name})
        if name == api_name
    )


def test_a_module_is_what_the_generator_writes() -> None:
    for name in ("heartbeat", "offset_fetch"):
        assert source_of(name) == (generate_messages.TARGET / f"{name}.py").read_text()


def test_a_name_in_both_request_and_response_says_which() -> None:
    names = set(vars(describe_topic_partitions))
    assert {"RequestCursor", "ResponseCursor"} < names
    assert "Cursor" not in names


def test_a_field_of_any_version_is_a_field_of_the_class() -> None:
    fields = fetch.FetchTopic.__dataclass_fields__
    assert set(fields) == {"topic", "topic_id", "partitions"}
    assert (fields["topic"].default, fields["topic_id"].default) == ("", None)


def test_durations_are_milliseconds() -> None:
    assert fetch.FetchRequest.__dataclass_fields__["max_wait_ms"].type is int
