"""Publications: the newest position, not too often, again after failures, at the end."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.spark.progress.publications import (
    PAUSE_SECONDS_MAX,
    QUERIES_MAX,
    REPEAT_SECONDS,
    Publication,
    Publications,
    group_id_of,
)
from penstock.spark.progress.reading import QueryProgress
from tests.spark.progress.documents import progress, source


def batch(offset: int, **fields: object) -> QueryProgress:
    return progress(source({("orders", 0): offset}), **fields)


def positions(due: list[Publication]) -> list[int]:
    return [next(iter(one.progress.sources[0].positions.values())) for one in due]


def test_names_of_groups() -> None:
    plain = source({("a", 0): 1})
    assert group_id_of(progress(plain)) == "spark-daily"
    assert group_id_of(progress(plain, name=None)) == "spark-6200e2ad-d4ba-4834-b28e-b9b233382e01"
    assert group_id_of(progress(plain), "etl") == "etl-daily"
    told = source({("a", 0): 1}, group_prefix="told")
    assert group_id_of(progress(plain, told)) == "told-daily"
    assert group_id_of(progress(told), "etl") == "etl-daily"  # the listener's prefix wins
    named = source({("a", 0): 1}, group_id="billing")
    assert group_id_of(progress(plain, named)) == "billing"


def test_a_position_waits_until_its_group_is_known() -> None:
    untold = source({("orders", 0): 10}, reports_group=False)
    publications = Publications(5.0)
    publications.note(progress(untold))
    assert publications.due(0.0) == []
    assert not publications.has_waiting()
    assert publications.seconds_until_due(0.0) is None
    publications.note(progress(source({("orders", 0): 20}, group_prefix="etl")))
    (first,) = publications.due(0.0)
    assert first.group_id == "etl-daily"
    publications.succeeded(first, 0.0)
    publications.note(progress(untold))  # its name is remembered
    assert [one.group_id for one in publications.due(5.0)] == ["etl-daily"]
    named = Publications(5.0, "mine")  # with a prefix the source's report is not needed
    named.note(progress(untold))
    assert [one.group_id for one in named.due(0.0)] == ["mine-daily"]


def test_a_query_that_ends_before_its_group_is_known_is_forgotten() -> None:
    publications = Publications(5.0)
    publications.note(progress(source({("orders", 0): 10}, reports_group=False)))
    publications.ended("run-1")
    publications.note(progress(source({("orders", 0): 11}, reports_group=False), run_id="run-2"))
    assert publications.due(0.0) == []


def test_only_the_newest_position_is_published_and_not_too_often() -> None:
    publications = Publications(5.0)
    publications.note(batch(10))
    publications.note(batch(20))
    (first,) = publications.due(0.0)
    assert positions([first]) == [20]
    publications.succeeded(first, 0.0)
    assert not publications.has_waiting()
    publications.note(batch(30))
    publications.note(batch(40))
    assert publications.has_waiting()
    assert publications.due(4.9) == []
    assert publications.seconds_until_due(4.0) == 1.0
    assert positions(publications.due(5.0)) == [40]


def test_a_position_noted_while_publishing_is_not_lost() -> None:
    publications = Publications(5.0)
    publications.note(batch(10))
    (first,) = publications.due(0.0)
    publications.note(batch(20))
    publications.succeeded(first, 1.0)
    assert publications.has_waiting()
    assert positions(publications.due(6.0)) == [20]


def test_the_end_of_a_query_is_published_without_delay_and_then_forgotten() -> None:
    publications = Publications(5.0)
    publications.note(batch(10))
    publications.succeeded(publications.due(0.0)[0], 0.0)
    publications.note(batch(20))
    assert publications.due(1.0) == []
    publications.ended("run-1")
    (last,) = publications.due(1.0)
    publications.succeeded(last, 1.0)
    assert publications.seconds_until_due(1.0) is None


def test_the_end_of_another_run_changes_nothing() -> None:
    publications = Publications(5.0)
    publications.note(batch(10, run_id="run-2"))
    publications.succeeded(publications.due(0.0)[0], 0.0)
    publications.ended("run-1")
    assert publications.seconds_until_due(0.0) == REPEAT_SECONDS
    publications.ended("run-2")
    assert publications.seconds_until_due(0.0) is None


def test_failures_pause_longer_and_longer() -> None:
    publications = Publications(5.0)
    publications.note(batch(10))
    now, pauses = 0.0, []
    for number in range(9):
        publications.note(batch(10 + number))  # new positions do not shorten the pause
        (one,) = publications.due(now)
        publications.failed(one, now)
        wait = publications.seconds_until_due(now)
        assert wait is not None
        pauses.append(wait)
        now += wait
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, PAUSE_SECONDS_MAX, 60.0, 60.0]
    publications.succeeded(publications.due(now)[0], now)
    publications.note(batch(99))
    assert publications.seconds_until_due(now) == 5.0


def test_a_quiet_query_is_published_again_before_brokers_forget_it() -> None:
    publications = Publications(5.0)
    publications.note(batch(10))
    publications.succeeded(publications.due(0.0)[0], 0.0)
    assert publications.due(REPEAT_SECONDS - 1) == []
    assert positions(publications.due(REPEAT_SECONDS)) == [10]


def test_queries_without_topics_are_not_published() -> None:
    publications = Publications(5.0)
    publications.note(progress())
    assert not publications.has_waiting()
    assert publications.seconds_until_due(0.0) is None


def test_the_number_of_queries_is_bounded() -> None:
    publications = Publications(5.0)
    for number in range(QUERIES_MAX + 10):
        publications.note(batch(1, query_id=str(number), name=None))
    due = publications.due(0.0)
    assert len(due) == QUERIES_MAX
    assert due[0].group_id == "spark-10"


class PublicationModel(RuleBasedStateMachine):
    """A broker that fails now and then ends up with the last position of every query."""

    def __init__(self) -> None:
        super().__init__()
        self.publications = Publications(5.0)
        self.now = 0.0
        self.noted: dict[str, int] = {}
        self.broker: dict[str, int] = {}
        self.offset = 0
        self.under_way: Publication | None = None

    @rule(query=st.sampled_from(["a", "b"]))
    def note(self, query: str) -> None:
        self.offset += 1
        self.publications.note(batch(self.offset, query_id=query, run_id=query, name=query))
        self.noted[query] = self.offset

    @rule(query=st.sampled_from(["a", "b"]))
    def end(self, query: str) -> None:
        self.publications.ended(query)

    @rule(seconds=st.sampled_from([0.5, 5.0, 120.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.under_way is None)
    @rule()
    def take(self) -> None:
        self.under_way = next(iter(self.publications.due(self.now)), None)

    @precondition(lambda self: self.under_way is not None)
    @rule(succeeds=st.booleans())
    def finish(self, succeeds: bool) -> None:
        assert self.under_way is not None
        if succeeds:
            self.broker[self.under_way.progress.query_id] = positions([self.under_way])[0]
            self.publications.succeeded(self.under_way, self.now)
        else:
            self.publications.failed(self.under_way, self.now)
        self.under_way = None

    @invariant()
    def nothing_waits_only_when_all_is_published(self) -> None:
        if not self.publications.has_waiting():
            assert self.broker == self.noted

    def teardown(self) -> None:
        if self.under_way is not None:
            self.finish(succeeds=True)
        self.now += 2 * PAUSE_SECONDS_MAX
        for one in self.publications.due(self.now):
            self.broker[one.progress.query_id] = positions([one])[0]
            self.publications.succeeded(one, self.now)
        assert self.broker == self.noted
        assert not self.publications.has_waiting()


PublicationModel.TestCase.settings = settings(max_examples=50, stateful_step_count=30)
test_publications_model = PublicationModel.TestCase
