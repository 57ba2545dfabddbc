"""Records of the topic of decisions: written, read back, folded; foreign records raise."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.spark.sink.errors import DecisionTopicError
from penstock.spark.sink.records import decision_record, done_record, fold
from penstock.spark.sink.steps import Decision, Ledger

QUERY = "0f3c"

transactions = st.builds(
    OpenTransaction,
    st.text(min_size=1, max_size=20),
    st.integers(0, 2**62),
    st.integers(0, 32_767),
    st.sampled_from([0, 2]),
)
decisions = st.builds(
    Decision,
    st.integers(0, 2**62),
    st.text(min_size=1, max_size=10),
    st.integers(0, 2**62),
    st.lists(transactions, max_size=5).map(tuple),
    st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=4).map(tuple),
    st.none() | st.integers(0, 2**64 - 1),
    st.text(max_size=10),
)


@given(decision=decisions)
def test_what_is_written_is_read_back(decision: Decision) -> None:
    made = decision_record(QUERY, decision)
    assert fold(QUERY, [made]) == Ledger(decision)
    done = done_record(QUERY, decision)
    assert fold(QUERY, [made, done]) == Ledger(decision, is_done=True)
    assert fold("other", [made, done]) == Ledger()


def decision(batch_id: int, run: str) -> Decision:
    return Decision(batch_id, run, 0, (), (run,))


def test_the_last_decision_counts_and_done_is_of_one_decision() -> None:
    first, second = decision(1, "a"), decision(2, "a")
    records = [decision_record(QUERY, first), done_record(QUERY, first)]
    assert fold(QUERY, records).is_done
    records.append(decision_record(QUERY, second))
    assert fold(QUERY, records) == Ledger(second)
    # Done of the same batch, as an earlier run decided it, is not done of this one.
    records.append(done_record(QUERY, decision(2, "b")))
    assert fold(QUERY, records) == Ledger(second)


def test_a_deleted_decision_is_none() -> None:
    key, _ = decision_record(QUERY, decision(1, "a"))
    assert fold(QUERY, [decision_record(QUERY, decision(1, "a")), (key, None)]) == Ledger()
    assert fold(QUERY, [(None, b"x"), (b"else", b"y")]) == Ledger()


def test_transactional_ids_share_what_they_begin_with() -> None:
    many = tuple(OpenTransaction(f"prefix.query.run.{n}", n, 0, 2) for n in range(100))
    _, value = decision_record(QUERY, Decision(1, "run", 0, many, ("run",)))
    assert len(value) < 100 * 20 + 200
    assert value.count(b"prefix.query.run.") == 1


def test_too_many_transactions_are_told() -> None:
    many = tuple(OpenTransaction(f"{n:040d}", n, 0, 2) for n in range(60_000))
    with pytest.raises(DecisionTopicError, match="coalesce"):
        decision_record(QUERY, Decision(1, "run", 0, many, ("run",)))


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":"x"}', b"\xff"]
)
def test_a_record_that_is_not_ours_is_told(value: bytes) -> None:
    with pytest.raises(DecisionTopicError, match="decisionTopic"):
        fold(QUERY, [(QUERY.encode(), value)])


def test_a_record_without_prefix_and_digest_is_read() -> None:
    """As it was written before they were kept."""
    key, value = decision_record(QUERY, decision(1, "a"))
    fields = json.loads(value)
    del fields["prefix"], fields["digest"]
    read = fold(QUERY, [(key, json.dumps(fields).encode())]).decision
    assert read == decision(1, "a")


def test_a_record_of_a_later_version_is_told() -> None:
    value = json.dumps({"version": 2}).encode()
    with pytest.raises(DecisionTopicError, match="newer Penstock"):
        fold(QUERY, [(QUERY.encode(), value)])
