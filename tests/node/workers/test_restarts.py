"""When a worker is started again, and when its supervisor gives up."""

from penstock.node.workers.restarts import (
    PAUSE_SECONDS_MAX,
    START_FAILURES_MAX,
    STEADY_SECONDS,
    Restarts,
)


def test_a_worker_that_answered_is_started_again_for_ever() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_after_run(1.0) for _ in range(20)]
    assert pauses[:4] == [0.0, 0.25, 0.5, 1.0]
    assert pauses[-1] == PAUSE_SECONDS_MAX


def test_a_steady_run_forgets_earlier_crashes() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.pause_after_run(1.0)
    assert restarts.pause_after_run(STEADY_SECONDS) == 0.0


def test_a_worker_that_never_answers_ends_the_supervisor() -> None:
    restarts = Restarts()
    pauses = [restarts.pause_after_failed_start(is_wrongly_set=False) for _ in range(5)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, None]
    assert len(pauses) == START_FAILURES_MAX


def test_only_failures_in_a_row_count() -> None:
    restarts = Restarts()
    for _ in range(3):
        for _ in range(START_FAILURES_MAX - 1):
            assert restarts.pause_after_failed_start(is_wrongly_set=False) is not None
        restarts.pause_after_run(1.0)


def test_wrong_settings_are_reported_at_the_first_start() -> None:
    assert Restarts().pause_after_failed_start(is_wrongly_set=True) is None


def test_wrong_settings_do_not_end_workers_that_ran() -> None:
    """Guards against a port that is in use for a moment after a crash."""
    restarts = Restarts()
    restarts.pause_after_run(1.0)
    assert restarts.pause_after_failed_start(is_wrongly_set=True) is not None
