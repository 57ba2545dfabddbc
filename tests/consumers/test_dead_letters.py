"""Headers of dead letters and retries: round trips, bounds, foreign records."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.consumers.consumer_record import ConsumerRecord, Headers
from penstock.consumers.delivery import dead_letters
from penstock.consumers.limits import ERROR_TEXT_CHARACTERS_MAX, ERROR_TYPE_CHARACTERS_MAX

KEYS = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=10), KEYS), max_size=4).map(tuple)
RECORDS = st.builds(
    ConsumerRecord,
    topic=st.text("abc._-", min_size=1, max_size=20),
    partition=st.integers(0, 1_000),
    offset=st.integers(0, 2**62),
    timestamp_ms=st.integers(-1, 2**50),
    key=KEYS,
    value=KEYS,
    headers=HEADERS,
    attempt=st.integers(1, 1_000),
)


def stored(record: dead_letters.OutgoingRecord) -> ConsumerRecord:
    return ConsumerRecord(record.topic, 5, 77, 123, record.key, record.value, record.headers)


@given(RECORDS, st.text(max_size=30), st.integers(0, 2**50))
def test_a_retried_record_is_the_original_with_the_next_attempt(
    record: ConsumerRecord, text: str, due_ms: int
) -> None:
    written = dead_letters.outgoing(
        "retry.g.t", record, group="g", error=ValueError(text), now_ms=9, due_ms=due_ms
    )
    origin = dead_letters.read_origin(written.headers)
    assert origin is not None
    assert origin.due_ms == due_ms
    assert (origin.group, origin.error_type, origin.attempts) == ("g", "ValueError", record.attempt)
    again = dead_letters.original(stored(written), origin)
    assert again.attempt == record.attempt + 1
    assert (again.at, again.offset, again.timestamp_ms) == (
        record.at,
        record.offset,
        record.timestamp_ms,
    )
    assert (again.key, again.value) == (record.key, record.value)
    assert again.headers == dead_letters.application_headers(record.headers)


def test_headers_do_not_grow_with_attempts() -> None:
    record = ConsumerRecord("t", 0, 1, 2, b"k", b"v", (("trace", b"7"),))
    sizes = set()
    for _ in range(3):
        written = dead_letters.outgoing(
            "dlq.t", record, group="g", error=KeyError("x"), now_ms=5, due_ms=None
        )
        sizes.add(len(written.headers))
        record = stored(written)
    assert sizes == {10}
    assert record.header("trace") == b"7"


class Unreadable(Exception):  # noqa: N818 (the name is part of the test)
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_errors_are_bounded_and_never_fail() -> None:
    record = ConsumerRecord("t", 0, 1, 2, None, None)
    long = dead_letters.outgoing(
        "dlq.t", record, group="g", error=ValueError("x" * 100_000), now_ms=5
    )
    origin = dead_letters.read_origin(long.headers)
    assert origin is not None
    assert len(origin.error_text) == ERROR_TEXT_CHARACTERS_MAX
    broken = dead_letters.outgoing("dlq.t", record, group="g", error=Unreadable(), now_ms=5)
    origin = dead_letters.read_origin(broken.headers)
    assert origin is not None
    assert origin.error_text == "(the text of this error cannot be read)"
    assert origin.error_type.endswith("Unreadable")
    assert len(origin.error_type) <= ERROR_TYPE_CHARACTERS_MAX
    lone = dead_letters.outgoing("dlq.t", record, group="g", error=ValueError("\ud800"), now_ms=5)
    assert dead_letters.read_origin(lone.headers) is not None


@given(HEADERS)
def test_foreign_headers_have_no_origin(headers: Headers) -> None:
    assert dead_letters.read_origin(headers) is None


@given(st.sampled_from(["", "x", "1.5", "٣", "9" * 40, "-", " 1", "0x1"]))
def test_a_number_that_is_none_is_no_origin(text: str) -> None:
    record = ConsumerRecord("t", 0, 1, 2, None, None)
    written = dead_letters.outgoing("dlq.t", record, group="g", error=ValueError(), now_ms=5)
    headers = tuple(
        (name, text.encode() if name == dead_letters.OFFSET else value)
        for name, value in written.headers
    )
    assert dead_letters.read_origin(headers) is None


def test_negative_attempts_are_no_origin() -> None:
    record = ConsumerRecord("t", 0, 1, 2, None, None, attempt=-1)
    written = dead_letters.outgoing("retry.t", record, group="g", error=ValueError(), now_ms=5)
    assert dead_letters.read_origin(written.headers) is None
