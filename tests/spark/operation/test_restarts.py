"""When a failed pipeline restarts: any failures, in any order, by the rules of the docstring."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tables.operation.pipeline_restarts import (
    COUNT_MAX,
    HEALTHY_MS,
    WAIT_MS_FIRST,
    WAIT_MS_MAX,
    End,
    Restart,
    RestartPolicy,
    Restarts,
    wait_ms_before,
)

CHANCES = st.floats(0, 1, exclude_max=True)
RUNS = st.one_of(st.none(), st.integers(0, HEALTHY_MS * 3))
POLICIES = st.builds(RestartPolicy, st.one_of(st.none(), st.integers(0, 5)), st.booleans())
FAILURES = st.lists(st.tuples(st.booleans(), RUNS, CHANCES), min_size=1, max_size=40)


def fail(
    restarts: Restarts, *, may_pass: bool = True, ran_ms: int | None = 1, chance: float = 0.0
) -> tuple[Restarts, Restart | End]:
    return restarts.after_failure(may_pass=may_pass, ran_ms=ran_ms, chance=chance)


@given(POLICIES, FAILURES)
def test_any_history_follows_the_rules(
    policy: RestartPolicy, failures: list[tuple[bool, int | None, float]]
) -> None:
    now = Restarts(policy)
    in_a_row, has_run = 0, False
    for may_pass, ran_ms, chance in failures:
        has_run = has_run or ran_ms is not None
        if ran_ms is not None and ran_ms >= HEALTHY_MS:
            in_a_row = 0
        now, step = now.after_failure(may_pass=may_pass, ran_ms=ran_ms, chance=chance)
        now.validate()
        limit = policy.count_max
        may_restart = (
            may_pass and (has_run or policy.is_explicit) and (limit is None or in_a_row < limit)
        )
        assert isinstance(step, Restart) is may_restart
        if not isinstance(step, Restart):
            return
        in_a_row += 1
        assert step.number == in_a_row
        assert WAIT_MS_FIRST // 2 <= step.wait_ms <= WAIT_MS_MAX


@given(st.integers(1, COUNT_MAX), CHANCES)
def test_a_pause_is_bounded_and_a_share_of_it_is_chance(number: int, chance: float) -> None:
    whole = wait_ms_before(number, 0.0)
    assert WAIT_MS_FIRST <= whole <= WAIT_MS_MAX
    assert whole / 2 <= wait_ms_before(number, chance) + 1 <= whole + 1
    assert wait_ms_before(number + 1, 0.0) in {min(WAIT_MS_MAX, whole * 2), WAIT_MS_MAX}


def test_a_failure_that_cannot_pass_ends_at_once() -> None:
    _, step = fail(Restarts(RestartPolicy(None, is_explicit=True)), may_pass=False)
    assert step == End("")


def test_the_first_start_is_repeated_only_if_the_user_says_so() -> None:
    for is_explicit in (False, True):
        _, step = fail(Restarts(RestartPolicy(3, is_explicit)), ran_ms=None)
        assert isinstance(step, Restart) is is_explicit
    started, _ = fail(Restarts(RestartPolicy(3)), ran_ms=1)
    _, step = fail(started, ran_ms=None)
    assert isinstance(step, Restart)


def test_a_crash_loop_ends_and_a_failure_a_day_never_does() -> None:
    now = Restarts(RestartPolicy(3))
    for _ in range(3):
        now, step = fail(now, ran_ms=HEALTHY_MS - 1)
        assert isinstance(step, Restart)
    _, step = fail(now, ran_ms=HEALTHY_MS - 1)
    assert step == End("after 3 restarts in a row")
    for _ in range(20):
        now, step = fail(now, ran_ms=HEALTHY_MS)
        assert step == Restart(WAIT_MS_FIRST, 1)
    assert now.total == 23
