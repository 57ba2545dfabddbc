"""Records of the decision topic: their keys, their JSON, and their state by query (pure).

The topic is compacted. Each query has two keys:

    <query>        {"version": 1, "batch": 7, "run": "…", "rows": 1000, "digest": 4711,
                    "runs": ["…", "…"], "prefix": "penstock-sink",
                    "stem": "penstock-sink.<query>.<run>.", "transactions": [["12", 4711, 0, 2]]}
    <query>/done   {"version": 1, "batch": 7, "run": "…"}

The log's owner writes the first inside a transaction. The second is written without one: any
process may record that a decision is carried out. `stem` is the common prefix of the transactional
ids; an entry has the rest of the id, the producer's id and epoch, and the transaction version.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.spark.sink.errors import DecisionTopicError
from penstock.spark.sink.steps import Decision, Ledger

VERSION: Final = 1
VALUE_BYTES_MAX: Final = 900_000
"""Below the brokers' default of max.message.bytes: about 40,000 transactions."""

_DONE: Final = "/done"


def decision_record(query: str, decision: Decision) -> tuple[bytes, bytes]:
    """Return the key and value of the record of a decision."""
    ids = [one.transactional_id for one in decision.transactions]
    stem = _common_start(ids)
    value = _encoded(
        {
            "version": VERSION,
            "batch": decision.batch_id,
            "run": decision.run,
            "rows": decision.row_count,
            "digest": decision.digest,
            "runs": list(decision.runs),
            "prefix": decision.id_prefix,
            "stem": stem,
            "transactions": [
                [one.transactional_id[len(stem) :], *one[1:]] for one in decision.transactions
            ],
        }
    )
    if len(value) > VALUE_BYTES_MAX:
        raise DecisionTopicError(
            f"batch {decision.batch_id} was written by {len(decision.transactions)} tasks, and "
            f"their list takes {len(value)} bytes, more than the {VALUE_BYTES_MAX} that a decision "
            "may have. Write with fewer tasks: df.coalesce(n) before writeStream."
        )
    return query.encode(), value


def done_record(query: str, decision: Decision) -> tuple[bytes, bytes]:
    """Return the key and value of the record for a completed decision."""
    value = {"version": VERSION, "batch": decision.batch_id, "run": decision.run}
    return f"{query}{_DONE}".encode(), _encoded(value)


def fold(query: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> Ledger:
    """Return this query's ledger from the records of a log, in the order of the log."""
    decision_key, done_key = query.encode(), f"{query}{_DONE}".encode()
    decision: Decision | None = None
    done: tuple[int, str] | None = None
    for key, value in records:
        if key not in (decision_key, done_key):
            continue
        try:
            if key == decision_key:
                decision = None if value is None else _read_decision(_decoded(value))
            else:
                done = None if value is None else _read_done(_decoded(value))
        except (ValueError, KeyError, TypeError) as error:
            raise DecisionTopicError(
                f"the topic of decisions has a record of query {query} that is not one of ours: "
                f"{(value or b'')[:80]!r}. Name another topic with the option decisionTopic, or "
                "delete the record."
            ) from error
    is_done = decision is not None and done == (decision.batch_id, decision.run)
    return Ledger(decision, is_done=is_done)


def _read_decision(fields: Mapping[str, Any]) -> Decision:
    return Decision(
        int(fields["batch"]),
        str(fields["run"]),
        int(fields["rows"]),
        tuple(
            OpenTransaction(fields["stem"] + rest, producer_id, producer_epoch, version)
            for rest, producer_id, producer_epoch, version in fields["transactions"]
        ),
        tuple(fields["runs"]),
        None if fields.get("digest") is None else int(fields["digest"]),
        str(fields.get("prefix", "")),
    )


def _read_done(fields: Mapping[str, Any]) -> tuple[int, str]:
    return int(fields["batch"]), str(fields["run"])


def _common_start(names: Sequence[str]) -> str:
    """Return the common prefix of all names: that of the first and the last in order."""
    if not names:
        return ""
    first, last = min(names), max(names)
    pairs = zip(first, last, strict=False)
    count = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return first[:count]


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _decoded(value: bytes) -> dict[str, Any]:
    fields = dict(json.loads(value))
    version = int(fields["version"])
    if version > VERSION:
        raise DecisionTopicError(
            f"the topic of decisions has a record of version {version}, and this Penstock reads "
            f"versions up to {VERSION}. Run the query with the newer Penstock that wrote it."
        )
    return fields
