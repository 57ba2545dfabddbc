"""The memory budget: bounded, fair, and never stuck."""

from penstock.broker.pacing.budget import MemoryBudget, RequestBudget


def test_waiters_go_on_in_their_order_while_there_is_budget() -> None:
    budget = MemoryBudget(100)
    resumed: list[str] = []

    def first() -> None:
        resumed.append("first")
        budget.reserve(100)

    def second() -> None:
        resumed.append("second")

    budget.reserve(150)
    assert budget.is_spent
    budget.wait(first)
    budget.wait(second)
    assert budget.waiting_count == 2
    budget.release(150)
    assert resumed == ["first"]
    budget.release(100)
    assert resumed == ["first", "second"]
    assert budget.reserved_bytes == 0


def test_a_waiter_that_left_is_not_called() -> None:
    budget = MemoryBudget(10)
    resumed: list[str] = []

    def resume() -> None:
        resumed.append("no")

    budget.reserve(10)
    budget.wait(resume)
    budget.stop_waiting(resume)
    budget.release(10)
    assert not resumed


def test_one_oversized_request_is_taken_when_nothing_is_in_flight() -> None:
    budget = MemoryBudget(10)
    states = [budget.is_spent]
    budget.reserve(1_000)
    states.append(budget.is_spent)
    budget.release(1_000)
    states.append(budget.is_spent)
    assert states == [False, True, False]


def test_one_at_a_time_may_finish_although_the_budget_is_spent() -> None:
    budget = MemoryBudget(10)
    resumed: list[str] = []

    def first() -> None:
        resumed.append("first")

    def second() -> None:
        resumed.append("second")

    budget.reserve(20)
    assert budget.may_finish(first)
    assert budget.may_finish(first)
    assert not budget.may_finish(second)
    budget.wait(second)
    budget.finished(second)
    assert not resumed, "it was not the one that may"
    budget.finished(first)
    assert resumed == ["second"]
    assert budget.may_finish(second)


def test_who_leaves_lets_the_next_one_finish() -> None:
    budget = MemoryBudget(10)
    resumed: list[str] = []

    def first() -> None:
        resumed.append("first")

    def second() -> None:
        resumed.append("second")

    budget.reserve(20)
    assert budget.may_finish(first)
    budget.wait(second)
    budget.stop_waiting(first)
    assert resumed == ["second"]
    assert budget.left_bytes == 0
    budget.release(15)
    assert budget.left_bytes == 5


def test_a_number_of_requests_is_a_bound_of_its_own() -> None:
    budget = RequestBudget(1_000, requests_max=2)
    resumed: list[str] = []
    budget.reserve(1)
    spent = [budget.is_spent]
    budget.reserve(1)
    assert [*spent, budget.is_spent] == [False, True]
    budget.wait(lambda: resumed.append("on"))
    budget.release(1)
    assert resumed == ["on"]
    assert budget.requests == 1
    assert (budget.pauses, budget.request_pauses) == (1, 1)


def test_the_bytes_of_requests_are_still_bounded() -> None:
    budget = RequestBudget(100, requests_max=50)
    budget.reserve(100)
    assert budget.is_spent
    budget.wait(lambda: None)
    assert (budget.pauses, budget.request_pauses) == (1, 0)
    budget.release(100)
    assert not budget.is_spent


def test_a_request_that_holds_nothing_is_not_counted() -> None:
    budget = RequestBudget(100, requests_max=1)
    for _ in range(5):
        budget.reserve(0)
    assert not budget.is_spent
    for _ in range(5):
        budget.release(0)
    assert budget.requests == 0


def test_who_waits_already_is_one_pause() -> None:
    budget = MemoryBudget(1)
    budget.reserve(1)

    def resume() -> None:
        raise AssertionError("nothing was released")

    budget.wait(resume)
    budget.wait(resume)
    assert budget.pauses == budget.waiting_count == 1
