"""Page tokens, waits for offsets and bodies of queries: parsed, or rejected with a remedy."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.admin.problems import RefusedError
from penstock.core.errors import InvalidRequestError
from penstock.materialize.offset_waits import missing, parse_at_least, parse_wait_seconds
from penstock.materialize.page_tokens import PageStart, read_token, write_token
from penstock.materialize.rest_answers import parse_limit, parse_query
from penstock.materialize.row_changes import column_of


@given(st.binary(max_size=40), st.integers(0, 2**31 - 1))
def test_a_token_returns_its_row(key: bytes, partition: int) -> None:
    start = PageStart(column_of(key), partition)
    assert read_token(write_token("price", "f", start), "price", "f") == start


def test_a_token_of_another_list_is_rejected() -> None:
    token = write_token("price", "$.a = 1", PageStart("k", 0))
    for topic, text in (("stock", "$.a = 1"), ("price", "$.a = 2")):
        with pytest.raises(InvalidRequestError, match="another topic or filter"):
            read_token(token, topic, text)


@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(lambda b: b.hex())))
def test_any_other_token_is_rejected(token: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_token(token, "price", "")


@pytest.mark.parametrize("fields", [[1], [1, 0, True, 5, 0], [1, 0, False, "?", 0], {"a": 1}, [2]])
def test_a_token_with_other_fields_is_rejected(fields: object) -> None:
    token = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
    with pytest.raises(InvalidRequestError):
        read_token(token, "price", "")


def test_at_least() -> None:
    assert parse_at_least(["0:5,1:7", "0:9"]) == {0: 9, 1: 7}
    assert missing({0: 9, 1: 7}, {0: 10, 1: 7}) == {1: 7}
    assert missing({0: 9}, {0: 10}) == {}
    assert missing({5: 0}, {}) == {5: 0}
    for text in ("", "0", "0:-1", "a:1", "0:1:2", "٣:1"):
        with pytest.raises(InvalidRequestError):
            parse_at_least([text])
    with pytest.raises(InvalidRequestError, match="at most"):
        parse_at_least([",".join(["0:1"] * 2_000)])


def test_wait_and_limit_are_bounded() -> None:
    assert parse_wait_seconds(None) == 5.0
    assert parse_wait_seconds("0.5") == 0.5
    for text in ("31", "-1", "x", "1e9", ""):
        with pytest.raises(InvalidRequestError):
            parse_wait_seconds(text)
    assert (parse_limit(None), parse_limit("7")) == (100, 7)
    for text in ("0", "1001", "x", "²"):
        with pytest.raises(InvalidRequestError):
            parse_limit(text)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"sql": 5}',
        b'{"sql": "SELECT 1", "other": 1}',
        b'{"sql": "SELECT 1", "parameters": {"a": 1}}',
        b'{"sql": "SELECT 1", "parameters": [[]]}',
        b'{"sql": "SELECT 1", "limit": 0}',
        b'{"sql": "SELECT 1", "limit": true}',
        b'{"sql": "' + b"x" * 70_000 + b'"}',
        b"[" * 100_000,
    ],
)
def test_other_bodies_are_rejected(body: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_query(body)
    assert caught.value.problem.status == 400
