"""Answers of the REST interface: JSON documents and problems from values (pure).

Rows are written as JSON text directly: a JSON value is embedded as it was stored, so numbers keep
their digits. Errors have the format of RFC 9457, with a remedy.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.admin.problems import RefusedError, refused
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.materialize.bounded_queries import (
    PARAMETERS_MAX,
    SQL_BYTES_MAX,
    QueryError,
    QueryResult,
    QueryTimeoutError,
    SqlValue,
)
from penstock.materialize.file_export import ExportError
from penstock.materialize.progress_board import TooManyWaitsError
from penstock.materialize.row_changes import Row, json_of, row_json

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
"""Rows of a page."""

_RETRY_SECONDS: Final = 1


def page_json(rows: Sequence[Row], next_page: str | None) -> bytes:
    """Return a page of rows."""
    listed = ",".join(row_json(row) for row in rows)
    return f'{{"rows":[{listed}],"next_page":{json.dumps(next_page)}}}'.encode()


def result_json(result: QueryResult) -> bytes:
    """Return the result of a query: columns, rows as lists, and whether a bound ended it."""
    document = {
        "columns": result.columns,
        "rows": [[_json_value(value) for value in row] for row in result.rows],
        "truncated": result.is_truncated,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(
        errors="surrogateescape"
    )


def _json_value(value: SqlValue) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, bytes):
        return json_of(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def parse_query(body: bytes) -> tuple[str, list[SqlValue], int | None]:
    """Return SQL, parameters and row limit of the body of `POST /v1/query`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _wrong_query("the body is not JSON.") from None
    if not isinstance(document, dict) or not set(document) <= {"sql", "parameters", "limit"}:
        raise _wrong_query("the body is not an object with `sql`, `parameters` and `limit`.")
    sql, parameters = document.get("sql"), document.get("parameters", [])
    limit = document.get("limit")
    if not isinstance(sql, str) or not sql.strip():
        raise _wrong_query("`sql` is not a text.")
    if len(sql.encode(errors="replace")) > SQL_BYTES_MAX:
        raise _wrong_query(f"`sql` is longer than {SQL_BYTES_MAX} bytes.")
    if not isinstance(parameters, list) or len(parameters) > PARAMETERS_MAX:
        raise _wrong_query(f"`parameters` is not a list of at most {PARAMETERS_MAX} values.")
    if not all(value is None or isinstance(value, str | int | float) for value in parameters):
        raise _wrong_query("`parameters` may have texts, numbers, true, false and null.")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise _wrong_query("`limit` is not a whole number above 0.")
    return sql, parameters, limit


def _wrong_query(detail: str) -> RefusedError:
    example = 'Send {"sql": "SELECT key FROM price WHERE sku = ?", "parameters": ["a-1"]}.'
    return refused(400, "Wrong request", detail, example)


def parse_limit(text: str | None) -> int:
    """Return the number of rows of a page."""
    if text is None:
        return LIMIT_DEFAULT
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= LIMIT_MAX:
        raise InvalidRequestError(
            f"limit={text[:32]!r} is not a number of rows.", hint=f"Write 1 to {LIMIT_MAX}."
        )
    return int(text[:9])


def unknown_topic(topic: str, known: Sequence[str]) -> RefusedError:
    """Return the error for a topic that this service does not have."""
    remedy = f"This service has: {', '.join(sorted(known))}."
    return refused(404, "Unknown topic", f"topic {topic[:249]!r} is not materialized.", remedy)


def missing_key(topic: str, *, is_loading: bool) -> RefusedError:
    """Return the error for a key without a row."""
    remedy = "The topic is still loading: wait with ?at_least=partition:offset."
    return refused(
        404, "Unknown key", f"{topic} has no row for this key.", remedy if is_loading else None
    )


def not_reached(topic: str, left: Mapping[int, int], positions: Mapping[int, int]) -> RefusedError:
    """Return the error for a wait whose time is over."""
    shown = ", ".join(
        f"partition {partition}: wanted {offset}, next is {positions.get(partition, 0)}"
        for partition, offset in sorted(left.items())[:8]
    )
    return refused(
        504,
        "Not reached",
        f"{topic} did not reach the offset in time ({shown}).",
        "Repeat the request, with a longer `wait`; /health shows the lag.",
        retry_after_seconds=_RETRY_SECONDS,
    )


def problem_of(error: PenstockError) -> RefusedError:
    """Return the problem for an error of this service."""
    if isinstance(error, RefusedError):
        return error
    statuses: tuple[tuple[type[PenstockError], int, str], ...] = (
        (InvalidRequestError, 400, "Wrong request"),
        (QueryError, 400, "Wrong query"),
        (QueryTimeoutError, 408, "Too slow"),
        (TooManyWaitsError, 503, "Too many waits"),
        (ExportError, 507, "No room"),
    )
    for kind, status, title in statuses:
        if isinstance(error, kind):
            retry = _RETRY_SECONDS if status == 503 else None
            return refused(status, title, str(error), error.hint or None, retry_after_seconds=retry)
    return refused(500, "Failed", str(error), error.hint or None)
