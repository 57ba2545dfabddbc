"""The sink against brokers, without Spark: crashes at every step, replays, zombies, timeouts.

On Penstock in memory, and with the marker on a Penstock process and on Apache Kafka.
"""

import contextlib
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transactions.producer_transactions import VERSION_2, ProducerTransactions
from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.client.transactions.transactions import Transactions
from penstock.core.errors import BrokerUnreachableError
from penstock.spark.errors import OptionError
from penstock.spark.sink import steps as sink_steps
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.decision_topic import ensure_topic
from penstock.spark.sink.errors import (
    DecisionTopicError,
    OwnershipForgottenError,
    OwnershipLostError,
    PartialCommitError,
    PrefixChangedError,
    ReplayDiffersError,
    SupersededError,
    TransactionsLeftOpenError,
    TransactionsLostError,
    TransactionsTooOldError,
)
from penstock.spark.sink.options import SinkOptions, find_columns, read_sink_options
from penstock.spark.sink.process import close_all
from penstock.spark.sink.task_writing import TaskIdentity, write_exactly_once
from penstock.spark.sink.transactions import (
    IDS_PER_NUMBER_MAX,
    NUMBERS,
    check_start,
    run_prefix,
)
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap
from tests.spark.sink_jobs import (
    NEXT_VALUES,
    VALUES,
    CrashError,
    CrashingDriver,
    Job,
    JobRun,
    cut,
    wait_for,
)

pytestmark = pytest.mark.slow

STEPS_OF_A_FIRST_COMMIT = 8


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.spark))
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as address:
        yield address
        close_all()


@pytest.fixture
def job(bootstrap: str) -> Iterator[Job]:
    made = Job(bootstrap)
    yield made
    made.close()


def test_batches_become_visible_as_a_whole(job: Job) -> None:
    run = job.start()
    results = run.write(0, cut(VALUES, 3))
    assert job.visible_values() == []
    run.driver.commit(results, 0)
    assert job.visible_values() == VALUES
    run.run_batch(1, cut(NEXT_VALUES, 2))
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)
    assert not job.is_anything_open()


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("number", range(1, STEPS_OF_A_FIRST_COMMIT + 1))
def test_a_crash_at_any_step_loses_and_repeats_nothing(
    bootstrap: str, number: int, is_after: bool
) -> None:
    job = Job(bootstrap)
    with pytest.raises(CrashError):
        job.start(number, is_after=is_after).run_batch(0, cut(VALUES, 3))

    second = job.start()
    second.run_batch(0, cut(VALUES, 2))
    assert job.visible_values() == VALUES
    second.run_batch(1, cut(NEXT_VALUES, 2))
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)
    assert not job.is_anything_open()
    job.close()


def test_there_are_as_many_steps_as_the_crashes_cover(job: Job) -> None:
    run = job.start()
    run.run_batch(0, cut(VALUES, 1))
    kinds = [
        sink_steps.ReadLedger,
        sink_steps.TakeOwnership,
        sink_steps.ReadLedger,
        sink_steps.LookAt,
        sink_steps.WriteDecision,
        sink_steps.CommitAll,
        sink_steps.WriteDone,
        sink_steps.ListOpen,
    ]
    assert run.driver.steps == kinds
    assert len(kinds) == STEPS_OF_A_FIRST_COMMIT
    run.driver.steps.clear()
    run.run_batch(1, cut(NEXT_VALUES, 1))
    # In a continuing run nothing is read again.
    assert run.driver.steps == kinds[3:7]


def test_a_replay_of_a_committed_batch_writes_nothing(job: Job) -> None:
    job.start().run_batch(0, cut(VALUES, 3))
    second = job.start()
    results = second.write(0, cut(VALUES, 2))
    assert {one.is_skipped for one in results} == {True}
    assert sum(one.row_count for one in results) == len(VALUES)
    second.driver.commit(results, 0)
    second.run_batch(1, cut(NEXT_VALUES, 2))
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)


def test_the_first_task_finishes_what_was_decided(job: Job) -> None:
    with pytest.raises(CrashError):
        job.start(sink_steps.CommitAll).run_batch(0, cut(VALUES, 3))
    assert job.visible_values() == []
    second = job.start()
    results = second.write(0, cut(VALUES, 2))
    assert job.visible_values() != []  # before the driver has said anything
    second.driver.commit(results, 0)
    assert job.visible_values() == VALUES


def test_two_drivers_cannot_both_decide(job: Job) -> None:
    first, second = job.start(), job.start()
    first_results = first.write(0, cut(VALUES, 2))
    second.run_batch(0, cut(VALUES, 3))
    # The second swept the first one's transactions, and the first one finds the batch committed.
    first.driver.commit(first_results, 0)
    assert job.visible_values() == VALUES

    results = second.write(1, cut(NEXT_VALUES, 1))
    with pytest.raises(SupersededError, match=first.identity.run):
        job_driver_forgets(second).commit(results, 1)
    second.driver.abort(results)
    first.run_batch(1, cut(NEXT_VALUES, 2))
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)
    assert not job.is_anything_open()


def job_driver_forgets(run: JobRun) -> CrashingDriver:
    """What Spark does to a process that was idle for a minute."""
    run.driver._known = None
    return run.driver


def test_an_owner_that_was_fenced_decides_nothing(job: Job) -> None:
    first = job.start()
    first.run_batch(0, cut(VALUES, 1))
    results = first.write(1, cut(NEXT_VALUES, 1))
    other = DecisionLog(
        job.cluster,
        ProducerTransactions(job.cluster),
        job.options.decision_topic,
        query=job.query,
        id_prefix=job.options.id_prefix,
    )
    other.take_ownership()
    with pytest.raises(OwnershipLostError, match="another driver"):
        first.driver.commit(results, 1)
    first.driver.abort(results)
    assert job.visible_values() == VALUES
    assert not job.is_anything_open()


def test_an_owner_that_the_cluster_forgot_is_told(job: Job) -> None:
    first = job.start()
    first.run_batch(0, cut(VALUES, 1))
    results = first.write(1, cut(NEXT_VALUES, 1))
    first.driver._log._owner = OpenTransaction(f"nobody-{uuid.uuid4()}", 4711, 0, VERSION_2)
    with pytest.raises(OwnershipForgottenError, match="Restart the query"):
        first.driver.commit(results, 1)
    first.driver.abort(results)
    job.start().run_batch(1, cut(NEXT_VALUES, 2))
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)


def test_attempts_that_died_are_swept(job: Job) -> None:
    run = job.start()
    run.run_batch(0, cut(VALUES, 1))
    run.write(1, cut(NEXT_VALUES, 2))  # killed before they could report
    results = [replace(one, is_repeated=True) for one in run.write(1, cut(NEXT_VALUES, 1))]
    assert job.is_anything_open()
    run.driver.commit(results, 1)
    wait_for(lambda: not job.is_anything_open())
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)


def test_tasks_of_a_large_stage_share_no_id(job: Job) -> None:
    """Numbers come again after 16,384 task starts, and all tasks of a stage leave theirs open."""
    run = job.start()
    job.attempts = itertools.cycle([5, 5 + NUMBERS, 5 + 2 * NUMBERS])
    results = run.write(0, cut(VALUES, 3)[1:])
    ids = {one.transaction.transactional_id for one in results if one.transaction}
    assert len(ids) == 3
    run.driver.commit(results, 0)
    assert job.visible_values() == VALUES


def test_ids_are_used_again(job: Job) -> None:
    """Brokers remember an id for a week: there must not be one for each task of each batch."""
    run = job.start()
    job.attempts = itertools.cycle(range(0, 4 * NUMBERS, NUMBERS))
    for batch_id in range(12):
        run.run_batch(batch_id, cut(VALUES, 3))
    prefix = run_prefix(job.options, run.identity)
    listed = [one.transactional_id for one in Transactions(job.cluster).list_all()]
    used = [name for name in listed if name.startswith(prefix)]
    # One that is still being ended is not waited for: then there are a few more.
    assert 3 <= len(used) <= 9


def test_a_failed_batch_under_ids_of_the_last_one_is_taken_back(job: Job) -> None:
    run = job.start()
    job.attempts = itertools.cycle([7])
    run.run_batch(0, [VALUES])
    name = f"{run_prefix(job.options, run.identity)}7.0"
    wait_for(
        lambda: ProducerTransactions(job.cluster).look_at([name])[name].state == "CompleteCommit"
    )
    results = run.write(1, [NEXT_VALUES])
    assert results[0].transaction
    assert results[0].transaction.transactional_id == name
    run.driver.abort(results)
    wait_for(lambda: not job.is_anything_open())
    assert job.visible_values() == VALUES


def test_a_task_that_finds_no_id_is_told(job: Job) -> None:
    run = job.start()
    job.attempts = itertools.cycle([1])
    for _ in range(IDS_PER_NUMBER_MAX):
        run.write(0, [VALUES])
    with pytest.raises(TransactionsLeftOpenError, match=r"32 transactions are open.*coalesce"):
        run.write(0, [VALUES])


def test_a_sweep_that_fails_is_told_and_tried_again(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.start().write(0, cut(VALUES, 1))  # a run that has ended
    run = job.start(sink_steps.ListOpen)
    run.driver.error = BrokerUnreachableError("no broker at 127.0.0.1:9")
    run.run_batch(0, cut(VALUES, 2))
    assert "no broker at 127.0.0.1:9" in caplog.text
    assert job.is_anything_open()
    run.driver.crash_at = None
    run.run_batch(1, cut(NEXT_VALUES, 1))
    wait_for(lambda: not job.is_anything_open())
    assert job.visible_values() == sorted(VALUES + NEXT_VALUES)


def test_a_task_that_fails_leaves_nothing_open(job: Job) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array(VALUES, pa.binary())], names=["value"])
        raise ValueError("the query failed")

    run = job.start()
    columns = find_columns([("value", "binary")], job.topic)
    task = TaskIdentity(run.identity, 0, 0, 0, 1)
    with pytest.raises(ValueError, match="the query failed"):
        write_exactly_once(job.options, columns, rows(), task)
    wait_for(lambda: not job.is_anything_open())
    assert job.visible_values() == []


def test_a_batch_that_fails_is_taken_back(job: Job) -> None:
    run = job.start()
    results = run.write(0, cut(VALUES, 2))
    run.driver.abort(results)
    wait_for(lambda: not job.is_anything_open())
    job.start().run_batch(0, cut(VALUES, 1))
    assert job.visible_values() == VALUES


def test_a_batch_that_takes_longer_than_its_transactions_is_told(bootstrap: str) -> None:
    job = Job(bootstrap, **{"kafka.transaction.timeout.ms": "1000"})
    run = job.start()
    results = run.write(0, cut(VALUES, 2))
    wait_for(lambda: not job.is_anything_open())
    with pytest.raises(TransactionsLostError, match=r"kafka\.transaction\.timeout\.ms"):
        run.driver.commit(results, 0)
    run.driver.abort(results)
    assert job.visible_values() == []
    job.close()


def test_a_batch_whose_transactions_are_about_to_time_out_is_not_decided(bootstrap: str) -> None:
    job = Job(bootstrap, **{"kafka.transaction.timeout.ms": "8000"})
    run = job.start()
    results = run.write(0, cut(VALUES, 2))
    transactions = ProducerTransactions(job.cluster)
    prefix = run_prefix(job.options, run.identity)
    wait_for(lambda: len(transactions.list_open(prefix, longer_than_ms=4_000)) == 2)
    with pytest.raises(TransactionsTooOldError, match="more than 4000 ms"):
        run.driver.commit(results, 0)
    assert sink_steps.WriteDecision not in run.driver.steps
    run.driver.abort(results)
    assert job.visible_values() == []
    job.start().run_batch(0, cut(VALUES, 1))
    assert job.visible_values() == VALUES
    job.close()


def test_the_age_of_a_batch_is_known_without_asking(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that goes on measures by itself; only one that waited long asks the brokers."""
    run = job.start()
    run.run_batch(0, cut(VALUES, 1))
    asked: list[int] = []

    def list_open(prefix: str, *, longer_than_ms: int = -1) -> list[str]:
        asked.append(longer_than_ms)
        return []

    monkeypatch.setattr(run.driver._transactions, "list_open", list_open)
    run.run_batch(1, cut(NEXT_VALUES, 1))
    assert asked == []
    run.driver._committed_at_seconds = job.cluster.clock.monotonic() - 810.0
    run.run_batch(2, cut(NEXT_VALUES, 1))
    assert asked == [810_000]


def test_a_decision_whose_transactions_all_timed_out_is_void(bootstrap: str) -> None:
    job = Job(bootstrap, **{"kafka.transaction.timeout.ms": "3000"})
    with pytest.raises(CrashError):
        job.start(sink_steps.CommitAll).run_batch(0, cut(VALUES, 2))
    wait_for(lambda: not job.is_anything_open())
    job.start().run_batch(0, cut(VALUES, 3))
    assert job.visible_values() == VALUES
    job.close()


def test_a_decision_that_can_only_be_kept_in_part_is_told(job: Job) -> None:
    run = job.start(sink_steps.CommitAll)
    results = run.write(0, cut(VALUES, 2))
    with pytest.raises(CrashError):
        run.driver.commit(results, 0)
    lost = next(one.transaction for one in results if one.transaction)
    ProducerTransactions(job.cluster).abort_all([lost])
    second = job.start()
    with pytest.raises(PartialCommitError, match=lost.transactional_id):
        second.run_batch(0, cut(VALUES, 3))
    assert len(job.visible_values()) == len(VALUES) / 2


def test_a_replay_with_more_rows_is_told(job: Job) -> None:
    job.start().run_batch(0, cut(VALUES, 1))
    with pytest.raises(ReplayDiffersError, match="offsets/0"):
        job.start().run_batch(0, cut(VALUES + NEXT_VALUES, 1))
    assert job.visible_values() == VALUES


@pytest.mark.parametrize("crash_at", [None, sink_steps.CommitAll])
def test_a_replay_with_other_rows_is_told(job: Job, crash_at: type | None) -> None:
    """Whether its tasks find the batch committed, or write it because it is not done yet."""
    first = job.start(crash_at)
    with contextlib.suppress(CrashError):
        first.run_batch(0, cut(VALUES, 3))
    with pytest.raises(ReplayDiffersError, match="60 rows, and is repeated with the same number"):
        job.start().run_batch(0, cut([*VALUES[1:], b"060"], 2))
    job.start().run_batch(0, cut(VALUES[::-1], 2))  # the same rows in another order
    assert job.visible_values() == VALUES

    job.options = replace(job.options, fails_on_difference=False)
    job.start().run_batch(0, cut(NEXT_VALUES, 2))
    assert job.visible_values() == VALUES


def test_options_that_name_the_log_must_not_change(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.start().run_batch(0, cut(VALUES, 1))
    before = job.options
    job.options = replace(before, id_prefix="other")
    with pytest.raises(PrefixChangedError, match="transactionalIdPrefix=penstock-sink"):
        job.start().run_batch(1, cut(NEXT_VALUES, 1))
    assert job.visible_values() == VALUES

    job.options = replace(before, decision_topic=f"decisions-{uuid.uuid4()}")
    check_start(job.cluster, job.options)
    job.start().run_batch(1, cut(NEXT_VALUES, 1))
    assert "decisionTopic was changed" in caplog.text


def test_an_empty_batch_is_decided_too(job: Job) -> None:
    job.start().run_batch(0, [[], []])
    second = job.start()
    results = second.write(0, [[]])
    assert results[0].is_skipped
    second.driver.commit(results, 0)
    assert job.visible_values() == []


def options_of(bootstrap: str, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, "topic": "any", **options}
    return read_sink_options(given, is_stream=True)


def test_a_timeout_above_what_brokers_allow_is_told_at_the_start(bootstrap: str) -> None:
    options = options_of(bootstrap, **{"kafka.transaction.timeout.ms": "900001"})
    problem = pytest.raises(OptionError, match=r"transaction\.max\.timeout\.ms")
    with open_cluster(options.client) as cluster, problem:
        check_start(cluster, options)


def test_a_topic_of_decisions_that_forgets_is_refused(bootstrap: str) -> None:
    options = options_of(bootstrap, decisionTopic=f"decisions-{uuid.uuid4()}")
    with open_cluster(options.client) as cluster:
        cluster.create_topic(NewTopic(options.decision_topic, 1))
        with pytest.raises(DecisionTopicError, match=r"cleanup\.policy=delete"):
            check_start(cluster, options)
        cluster.configure_topic(options.decision_topic, {"cleanup.policy": "compact"})
        wait_for(lambda: not is_refused(cluster, options))


def is_refused(cluster: Cluster, options: SinkOptions) -> bool:
    """Whether the start is refused; a new setting of a topic takes a moment to be seen."""
    try:
        check_start(cluster, options)
    except DecisionTopicError:
        return True
    return False


def test_a_topic_of_decisions_is_made_once(bootstrap: str) -> None:
    options = options_of(bootstrap, decisionTopic=f"decisions-{uuid.uuid4()}")
    with open_cluster(options.client) as cluster:
        ensure_topic(cluster, options.decision_topic)
        ensure_topic(cluster, options.decision_topic)
        assert len(cluster.topic(options.decision_topic).partitions) == 8
