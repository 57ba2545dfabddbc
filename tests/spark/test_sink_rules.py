"""The rules of the sink's protocol, each by an example, so that a failure says which one it broke.

Every order of events is `test_sink_protocol`'s.
"""

import pytest

from penstock.spark.sink import steps as sink_steps
from penstock.spark.sink.decisions import longest_age_ms
from penstock.spark.sink.errors import (
    CheckpointSetBackError,
    DecisionMissingError,
    PartialCommitError,
    PrefixChangedError,
    ReplayDiffersError,
    SupersededError,
    TransactionsLostError,
    TransactionsTooOldError,
)
from tests.spark.sink_world import (
    QUERY,
    State,
    World,
    advance_to,
    cut,
    finish,
    new_run,
    rows_of,
    write_and_commit,
)


def test_a_batch_becomes_visible_as_a_whole() -> None:
    world = World()
    run = new_run(world, "a")
    write_and_commit(run)
    assert world.committed_batch == 0
    assert sorted(world.visible_rows()) == rows_of(0)


@pytest.mark.parametrize("stop_at", [sink_steps.CommitAll, sink_steps.WriteDone])
@pytest.mark.parametrize("ended_count", [0, 1])
def test_a_decided_batch_is_finished_and_not_written_again(stop_at: type, ended_count: int) -> None:
    world = World()
    first = new_run(world, "a")
    first.write(cut(rows_of(0), [2]), skips=True)
    first.begin_commit(remembers=False, sweeps=False)
    advance_to(first, stop_at)
    for _ in range(ended_count):
        first.advance()

    second = new_run(world, "b")
    write_and_commit(second, [1])
    assert second.failure is None
    assert sorted(world.visible_rows()) == rows_of(0)
    assert {one.run for one in world.transactions.values() if one.was_committed} == {"a"}


def test_an_undecided_batch_is_aborted_and_written_anew() -> None:
    world = World()
    first = new_run(world, "a")
    first.write(cut(rows_of(0), [2]), skips=True)
    first.begin_commit(remembers=False, sweeps=False)
    advance_to(first, sink_steps.WriteDecision)

    second = new_run(world, "b")
    write_and_commit(second)
    assert sorted(world.visible_rows()) == rows_of(0)
    states = {one.run: one.state for one in world.transactions.values()}
    assert states == {"a": State.ABORTED, "b": State.COMMITTED}

    first.advance()
    assert first.failure is not None  # fenced: it cannot decide any more
    finish(first)
    assert sorted(world.visible_rows()) == rows_of(0)


def test_a_replay_of_a_committed_batch_writes_nothing() -> None:
    world = World()
    write_and_commit(new_run(world, "a"))
    world.committed_batch = -1  # the checkpoint is set back to before the commit
    count = len(world.transactions)

    second = new_run(world, "b")
    write_and_commit(second)
    assert second.failure is None
    assert len(world.transactions) == count
    write_and_commit(second)
    assert sorted(world.visible_rows()) == rows_of(0) + rows_of(1)


def test_a_replaced_run_stops_and_takes_nothing_back() -> None:
    world = World()
    first = new_run(world, "a")
    write_and_commit(first)
    first.write(cut(rows_of(1), [1]), skips=True)
    second = new_run(world, "b")
    write_and_commit(second)
    owner = world.owner

    first.begin_commit(remembers=False, sweeps=True)
    finish(first)
    assert isinstance(first.failure, SupersededError)
    assert world.owner == owner
    write_and_commit(second)
    assert second.failure is None


def test_a_run_whose_tasks_saw_its_successor_stops() -> None:
    """Its driver still knows the log as it left it, and its tasks have read what came after."""
    world = World()
    first = new_run(world, "a")
    write_and_commit(first)
    second = new_run(world, "b")
    write_and_commit(second)
    first.write(cut(rows_of(1), [1]), skips=True)
    first.begin_commit(remembers=True, sweeps=False)
    finish(first)
    assert isinstance(first.failure, SupersededError)
    assert "run b" in str(first.failure)
    assert sorted(world.visible_rows()) == rows_of(0) + rows_of(1)


def test_a_decision_that_was_deleted_after_tasks_saw_it_is_told() -> None:
    world = World()
    write_and_commit(new_run(world, "a"))
    world.committed_batch = -1
    second = new_run(world, "b")
    second.write(cut(rows_of(0), [1]), skips=True)
    world.log.append((QUERY.encode(), None))
    second.begin_commit(remembers=True, sweeps=False)
    finish(second)
    assert isinstance(second.failure, DecisionMissingError)
    assert "offsets/0" in str(second.failure)


def test_a_decision_that_lost_all_its_transactions_is_void() -> None:
    world = World()
    first = new_run(world, "a")
    first.write(cut(rows_of(0), [2]), skips=True)
    first.begin_commit(remembers=False, sweeps=False)
    advance_to(first, sink_steps.CommitAll)
    for one in world.transactions:
        world.abort(one)
    finish(first)
    assert isinstance(first.failure, TransactionsLostError)

    write_and_commit(new_run(world, "b"))
    assert sorted(world.visible_rows()) == rows_of(0)


def test_a_decision_that_lost_some_of_its_transactions_is_told() -> None:
    world = World()
    first = new_run(world, "a")
    first.write(cut(rows_of(0), [2]), skips=True)
    first.begin_commit(remembers=False, sweeps=False)
    advance_to(first, sink_steps.CommitAll)
    world.abort(list(world.transactions)[1])
    finish(first)
    assert isinstance(first.failure, PartialCommitError)

    second = new_run(world, "b")
    write_and_commit(second)
    assert isinstance(second.failure, PartialCommitError)
    assert "at-least-once" in str(second.failure)
    assert world.committed_batch == -1


@pytest.mark.parametrize("lost_count", [1, 2])
def test_a_lost_batch_that_spark_has_left_behind_is_told_once(lost_count: int) -> None:
    """Somebody wrote it with another guarantee, or nobody did: it cannot be known."""
    world = World()
    first = new_run(world, "a")
    first.write(cut(rows_of(0), [2]), skips=True)
    first.begin_commit(remembers=False, sweeps=False)
    advance_to(first, sink_steps.CommitAll)
    lost = list(world.transactions)[:lost_count]
    for one in lost:
        world.abort(one)
    first.is_alive = False
    world.committed_batch = 0  # as a run with at-least-once leaves it

    second = new_run(world, "b")
    write_and_commit(second)
    assert second.failure is None
    (warning,) = second.warnings
    assert "batch 0 was decided" in warning
    assert "offsets/0" in warning
    assert all(one.transactional_id in warning for one in lost)
    write_and_commit(second)
    write_and_commit(new_run(world, "c"))
    assert len(second.warnings) == 1


def test_a_transaction_that_ended_before_the_decision_stops_the_batch() -> None:
    world = World()
    run = new_run(world, "a")
    run.write(cut(rows_of(0), [2]), skips=True)
    world.abort(next(iter(world.transactions)))
    run.begin_commit(remembers=False, sweeps=False)
    finish(run)
    assert isinstance(run.failure, TransactionsLostError)
    assert "kafka.transaction.timeout.ms" in str(run.failure)
    assert world.visible_rows() == []


def test_a_transaction_close_to_its_timeout_is_not_decided() -> None:
    """The cluster might abort it before it is committed, and then part of the batch is missing."""
    world = World()
    run = new_run(world, "a")
    run.write(cut(rows_of(0), [2]), skips=True)
    old = list(world.transactions)[1]
    world.pass_time(old)
    run.begin_commit(remembers=False, sweeps=False)
    finish(run)
    assert isinstance(run.failure, TransactionsTooOldError)
    assert old.transactional_id in str(run.failure)
    assert "kafka.transaction.timeout.ms" in str(run.failure)
    assert world.ledger().decision is None
    write_and_commit(new_run(world, "b"))
    assert sorted(world.visible_rows()) == rows_of(0)


@pytest.mark.parametrize(
    ("timeout_ms", "age_ms_max"),
    [(900_000, 810_000), (60_000, 54_000), (20_000, 15_000), (10_000, 5_000), (1_000, 500)],
)
def test_how_old_a_transaction_may_be(timeout_ms: int, age_ms_max: int) -> None:
    assert longest_age_ms(timeout_ms) == age_ms_max


def test_a_replay_with_more_rows_is_told() -> None:
    world = World()
    write_and_commit(new_run(world, "a"))
    world.committed_batch = -1
    second = new_run(world, "b")
    second.write([[*rows_of(0), (0, 99)]], skips=False)
    second.begin_commit(remembers=False, sweeps=False)
    finish(second)
    assert isinstance(second.failure, ReplayDiffersError)
    assert sorted(world.visible_rows()) == rows_of(0)


def test_a_replay_with_other_rows_is_told() -> None:
    """As many, as it is when offsets were lost and batches have a bound."""
    world = World()
    write_and_commit(new_run(world, "a"))
    world.committed_batch = -1
    second = new_run(world, "b")
    second.write([[*rows_of(0)[1:], (0, 99)]], skips=True)
    second.begin_commit(remembers=False, sweeps=False)
    finish(second)
    assert isinstance(second.failure, ReplayDiffersError)
    assert "the same number of other rows" in str(second.failure)
    assert "failOnReplayDifference" in str(second.failure)


def test_a_checkpoint_that_was_set_back_further_is_told() -> None:
    world = World()
    run = new_run(world, "a")
    write_and_commit(run)
    write_and_commit(run)
    world.committed_batch = -1
    second = new_run(world, "b")
    write_and_commit(second)
    assert isinstance(second.failure, CheckpointSetBackError)


def test_a_failed_commit_does_not_abort_what_was_decided() -> None:
    """Spark calls abort after a commit that raised: the decision stands, and so must the rows."""
    world = World()
    run = new_run(world, "a")
    run.write(cut(rows_of(0), [2]), skips=True)
    run.begin_commit(remembers=False, sweeps=False)
    advance_to(run, sink_steps.CommitAll)
    run.begin_abort()
    finish(run)
    assert all(one.state is State.OPEN for one in world.transactions.values())
    write_and_commit(new_run(world, "b"))
    assert sorted(world.visible_rows()) == rows_of(0)


def test_leftovers_of_dead_attempts_are_aborted() -> None:
    world = World()
    run = new_run(world, "a")
    write_and_commit(run)
    world.open_transaction("a", rows_of(1))
    run.write(cut(rows_of(1), [1]), skips=True)
    run.begin_commit(remembers=True, sweeps=True)
    finish(run)
    assert State.OPEN not in {one.state for one in world.transactions.values()}
    assert sorted(world.visible_rows()) == rows_of(0) + rows_of(1)


@pytest.mark.parametrize("step", [sink_steps.ListOpen, sink_steps.Fence])
@pytest.mark.parametrize("is_carried_out", [False, True])
def test_a_sweep_that_fails_is_no_failure_of_the_batch(step: type, is_carried_out: bool) -> None:
    world = World()
    world.open_transaction("before", rows_of(0))
    run = new_run(world, "a")
    run.write(cut(rows_of(0), [2]), skips=True)
    run.begin_commit(remembers=True, sweeps=False)
    advance_to(run, step)
    run.fail(is_carried_out=is_carried_out)
    finish(run)
    assert run.failure is None
    assert world.committed_batch == 0
    assert ["could not be aborted" in one for one in run.warnings] == [True]

    write_and_commit(run)  # looks for all of them again
    assert run.failure is None
    assert not world.open_ones()
    assert len(run.warnings) == 1


@pytest.mark.parametrize("pause_at", [sink_steps.ListOpen, sink_steps.ReadLedger])
def test_a_run_that_slept_in_its_sweep_leaves_its_successor_alone(pause_at: type) -> None:
    """It takes over, sleeps, and a third run takes over from it and decides."""
    world = World()
    world.open_transaction("before", rows_of(0))
    second = new_run(world, "b")
    second.write(cut(rows_of(0), [2]), skips=True)
    second.begin_commit(remembers=True, sweeps=False)
    advance_to(second, sink_steps.WriteDone)
    second.advance()
    third = new_run(world, "c")
    third.write(cut(rows_of(0), [1]), skips=False)
    advance_to(second, pause_at)

    third.begin_commit(remembers=True, sweeps=False)
    finish(third)
    third.write(cut(rows_of(1), [1]), skips=True)
    third.begin_commit(remembers=True, sweeps=False)
    advance_to(third, sink_steps.CommitAll)
    finish(second)  # continues where it slept
    finish(third)
    assert third.failure is None
    assert sorted(world.visible_rows()) == rows_of(0) + rows_of(1)


def test_a_list_that_is_older_than_the_log_holds_nothing_that_is_decided_later() -> None:
    """It sleeps after it has read the log: what it aborts then is of a batch that is over."""
    world = World()
    world.open_transaction("before", rows_of(0))
    second = new_run(world, "b")
    second.write(cut(rows_of(0), [2]), skips=True)
    third = new_run(world, "c")
    third.write(cut(rows_of(0), [1]), skips=False)
    second.begin_commit(remembers=True, sweeps=False)
    advance_to(second, sink_steps.Fence)
    write_and_commit(third)
    third.write(cut(rows_of(1), [1]), skips=True)
    third.begin_commit(remembers=True, sweeps=False)
    advance_to(third, sink_steps.CommitAll)
    finish(second)
    finish(third)
    assert third.failure is None
    assert sorted(world.visible_rows()) == rows_of(0) + rows_of(1)


def test_another_prefix_on_a_living_checkpoint_is_refused() -> None:
    """The log's owner would have another id, and fence nobody."""
    world = World()
    first = new_run(world, "a")
    write_and_commit(first)
    owner = world.owner
    second = new_run(world, "b")
    second.id_prefix = "other"
    write_and_commit(second)
    assert isinstance(second.failure, PrefixChangedError)
    assert "transactionalIdPrefix=sink" in str(second.failure)
    assert world.owner == owner + 1  # only to abort its tasks' transactions
    assert not world.open_ones()


def test_a_query_that_goes_on_without_decisions_is_told() -> None:
    """Another topic of decisions, or another guarantee until now: it cannot be known."""
    world = World()
    run = new_run(world, "a")
    write_and_commit(run)
    assert run.warnings == []
    world.log.clear()
    second = new_run(world, "b")
    write_and_commit(second)
    assert second.failure is None
    assert ["decisionTopic" in one for one in second.warnings] == [True]
    write_and_commit(second)
    assert len(second.warnings) == 1


def test_an_id_that_was_committed_before_is_no_reason_to_keep_what_is_open() -> None:
    """The transactions of the next batch have the same ids: a failed batch is taken back."""
    world = World()
    run = new_run(world, "a")
    write_and_commit(run)
    run.write(cut(rows_of(1), [2]), skips=True)
    first, *_, last = world.transactions
    assert run.batch is not None
    assert first.transactional_id in {one.transactional_id for one in run.batch.transactions}
    assert first.producer_epoch < last.producer_epoch
    run.begin_abort()
    finish(run)
    assert not world.open_ones()
    assert sorted(world.visible_rows()) == rows_of(0)
