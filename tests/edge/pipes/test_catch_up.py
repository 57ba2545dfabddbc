"""Places of children that read old records."""

from penstock.edge.pipes.http.catch_up import LAG_RECORDS_MAX, LEASE_SECONDS, CatchUp

FAR = LAG_RECORDS_MAX + 1


def test_only_some_readers_read_old_records_at_a_time() -> None:
    places = CatchUp()
    assert [places.admit(f"r{n}", FAR, 2, 0.0) for n in range(3)] == [None, None, 2]
    assert places.admit("r0", FAR, 2, 1.0) is None  # it keeps its place
    assert places.admit("r2", LAG_RECORDS_MAX, 2, 1.0) is None  # live data is always served
    assert places.reader_count == 2
    places.done("r1")
    assert places.admit("r2", FAR, 2, 2.0) is None


def test_a_silent_reader_loses_its_place() -> None:
    places = CatchUp()
    assert places.admit("gone", FAR, 1, 0.0) is None
    assert places.admit("next", FAR, 1, LEASE_SECONDS) is not None
    assert places.admit("next", FAR, 1, LEASE_SECONDS + 0.1) is None
    assert places.admit("gone", FAR, 1, LEASE_SECONDS + 0.2) is not None


def test_pauses_grow_with_the_waiting_readers_up_to_a_bound() -> None:
    places = CatchUp()
    waits = [places.admit(f"r{n}", FAR, 32, 0.0) for n in range(5_000)]
    assert waits[:32] == [None] * 32
    assert waits[32] == 2
    assert waits[1_000] == 32
    assert waits[-1] == 60
    assert places.admit("r32", FAR, 32, 1_000.0) is None  # the others are forgotten
