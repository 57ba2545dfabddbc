"""A client's observer counts the measured part only, and latency from the due time."""

from penstock.bench.assignment import Progress
from penstock.bench.observing import Observer, waited_for_processor_ns
from penstock.bench.pacing import SECOND_NS

BEGIN = 10 * SECOND_NS
END = 20 * SECOND_NS


def ignore(_progress: Progress) -> None:
    """Nobody looks."""


def test_a_pause_is_charged_to_everything_that_it_made_wait() -> None:
    observer = Observer(BEGIN, END, ignore)
    woke = BEGIN + 2 * SECOND_NS
    for number in range(10):
        # Ten batches were due, a tenth of a second apart, while the broker did nothing.
        observer.done(woke, BEGIN + number * SECOND_NS // 10, 1, 1)
    latency = observer.result.latency
    assert latency.count == 10
    assert latency.min_us == 1_100_000
    assert latency.max_us == 2_000_000


def test_warm_up_and_what_comes_late_are_not_counted_as_done() -> None:
    observer = Observer(BEGIN, END, ignore)
    observer.done(BEGIN - 5, BEGIN - 10, 1, 1)  # warm-up
    observer.done(BEGIN + 5, BEGIN - 10, 10, 1)  # done in time, due in the warm-up
    observer.done(END + 5, END - 10, 100, 1)  # due in time, done too late
    assert observer.result.records == 10
    assert observer.result.records_in_all == 111
    assert observer.result.latency.count == 1
    assert observer.finish(END + 10).end_ns == END


def test_of_a_number_exactly_that_many_count() -> None:
    observer = Observer(BEGIN, None, ignore)
    observer.done(BEGIN + 5, BEGIN - 1, 10, 1)  # due in the warm-up: of another count
    observer.done(BEGIN + 9, BEGIN + 1, 7, 1)
    assert observer.result.records == 7
    assert observer.finish(BEGIN + 10).end_ns == BEGIN + 9


def test_progress_is_told_four_times_a_second() -> None:
    told: list[Progress] = []
    observer = Observer(BEGIN, END, told.append)
    observer.done(BEGIN + 1, BEGIN, 5, 50)
    for step in range(40):
        observer.tick(BEGIN + step * SECOND_NS // 20)
    assert len(told) == 8
    assert told[0] == Progress(5, 50, 0)


def test_waiting_for_a_processor_never_goes_back() -> None:
    first = waited_for_processor_ns()
    assert 0 <= first <= waited_for_processor_ns()
