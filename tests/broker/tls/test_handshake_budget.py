"""Places, time limits, the line and the steps of handshakes (pure), with a model."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.tls.handshakes import HandshakeBudget, is_hello, whole_records
from penstock.broker.tls.tls_limits import HandshakeLimits

SMALL = HandshakeLimits(
    handshakes_max=4, per_address_max=2, waiting_max=3, seconds_max=10, place_seconds_min=1
)


def test_places_are_given_at_once() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    budget.begin("a1", "a", 0)
    assert budget.update(0).admitted == ["a1"]
    assert budget.admitted_count == 1
    budget.end("a1")
    assert budget.admitted_count == 0
    assert budget.next_update(0) is None


def test_one_address_cannot_have_all_places() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for number in range(4):
        budget.begin(f"a{number}", "a", 0)
    budget.begin("b0", "b", 0)
    assert budget.update(0).admitted == ["a0", "b0", "a1"]
    assert budget.waiting_count == 2
    budget.end("a0")
    assert budget.update(0).admitted == ["a2"]


def test_ipv6_addresses_of_one_network_have_the_places_of_one_address() -> None:
    budget: HandshakeBudget[int] = HandshakeBudget(SMALL)
    for number in range(3):
        budget.begin(number, f"2001:db8::{number:x}", 0)
    budget.begin(3, "2001:db8:0:1::1", 0)
    assert sorted(budget.update(0).admitted) == [0, 1, 3]
    budget.end(0)
    assert budget.update(0).admitted == [2]


def test_addresses_take_turns() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for address in "ab":
        for number in range(2):
            budget.begin(f"{address}{number}", address, 0)
    assert len(budget.update(0).admitted) == 4
    for one, address in (("a2", "a"), ("c0", "c"), ("a3", "a")):
        budget.begin(one, address, 0)
    assert budget.update(0).admitted == []
    budget.end("b0")
    assert budget.update(0).admitted == ["c0"]
    budget.end("a0")
    assert budget.update(0).admitted == ["a2"]


def test_a_handshake_has_its_time() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    budget.begin("a", "a", 0)
    budget.update(0)
    budget.begin("b", "b", 3)
    budget.update(3)
    assert budget.next_update(3) == 10
    assert budget.update(9.9).expired == []
    assert budget.update(10).expired == ["a"]
    assert budget.next_update(10) == 13


def test_waiting_counts_for_the_time() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for number in range(3):
        budget.begin(f"a{number}", "a", 0)
    for one in budget.update(0).admitted:
        budget.ask_for_step(one)  # they wait for the broker, and keep their places
    assert budget.update(9).expired == []
    assert sorted(budget.update(10).expired) == ["a0", "a1", "a2"]
    assert budget.waiting_count == budget.admitted_count == 0


def test_the_oldest_of_the_address_with_the_most_yields() -> None:
    limits = HandshakeLimits(handshakes_max=4, per_address_max=3, place_seconds_min=1)
    budget: HandshakeBudget[str] = HandshakeBudget(limits)
    for one, address in (("b0", "b"), ("a0", "a"), ("a1", "a"), ("a2", "a")):
        budget.begin(one, address, 0)
        budget.update(0)
    budget.begin("c0", "c", 0.5)
    assert budget.update(0.5).crowded_out == []
    assert budget.next_update(0.5) == 0.6
    changes = budget.update(1)
    assert changes.crowded_out == ["a0"]
    assert changes.admitted == ["c0"]


def test_a_handshake_that_waits_for_the_broker_does_not_yield() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for number in range(3):
        budget.begin(f"a{number}", "a", 0)
        budget.update(0)
    budget.ask_for_step("a0")
    changes = budget.update(2)
    assert changes.crowded_out == ["a1"]
    assert changes.admitted == ["a2"]


def test_without_others_a_slow_handshake_keeps_its_place() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for number in range(2):
        budget.begin(f"a{number}", "a", 0)
        budget.begin(f"b{number}", "b", 0)
    budget.update(0)
    assert budget.update(9).crowded_out == []


def test_the_line_is_bounded_and_the_crowd_pays() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for number in range(4):
        budget.begin(f"a{number}", "a", 0)
        budget.update(0)
    for number in range(3):
        budget.begin(f"b{number}", "b", 0)
        budget.update(0)
    assert budget.waiting_count == 3
    budget.begin("c0", "c", 0)
    changes = budget.update(0)
    assert changes.crowded_out == ["a2"]
    assert budget.waiting_count == 3


def test_a_flood_of_silent_clients_is_bounded_and_others_get_in() -> None:
    budget: HandshakeBudget[int] = HandshakeBudget(HandshakeLimits())
    now = 0.0
    for number in range(2_000):
        budget.begin(number, "flood", now)
        budget.update(now)
        now += 0.001
        assert budget.admitted_count <= 16
        assert budget.waiting_count <= 1_024
    budget.begin(-1, "honest", now)
    assert budget.update(now).admitted == [-1]


def test_a_flood_of_many_addresses_delays_others_for_a_second_at_most() -> None:
    budget: HandshakeBudget[int] = HandshakeBudget(HandshakeLimits())
    for number in range(2_000):
        budget.begin(number, f"flood {number % 32}", 0)
        budget.update(0)
    assert budget.admitted_count == 256
    budget.begin(-1, "honest", 0)
    budget.update(0)
    admitted: list[int] = []
    now = 0.0
    while -1 not in admitted:
        now += 0.1
        admitted += budget.update(now).admitted
    assert now <= 1.2


def test_steps_are_in_order_and_once() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for one in ("a", "b", "c"):
        budget.begin(one, one, 0)
    budget.update(0)
    for one in ("b", "a", "b", "c", "a"):
        budget.ask_for_step(one)
    budget.end("c")
    budget.ask_for_step("c")
    assert [budget.next_step() for _ in range(3)] == ["b", "a", None]


def test_limits_may_change() -> None:
    budget: HandshakeBudget[str] = HandshakeBudget(SMALL)
    for number in range(3):
        budget.begin(f"a{number}", "a", 0)
    budget.update(0)
    budget.limits = HandshakeLimits(handshakes_max=4, per_address_max=4)
    assert budget.update(0).admitted == ["a2"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "end", "step", "ask", "wait"]),
            st.integers(0, 4),
            st.floats(0, 3),
        ),
        max_size=200,
    )
)
def test_bounds_hold_after_every_event(events: list[tuple[str, int, float]]) -> None:
    budget: HandshakeBudget[int] = HandshakeBudget(SMALL)
    now = 0.0
    begun: dict[int, tuple[str, float]] = {}
    admitted: dict[int, float] = {}
    for number, (event, choice, seconds) in enumerate(events):
        now += seconds
        known = list(begun)
        if event == "begin":
            begun[number] = f"address {choice % 3}", now
            budget.begin(number, f"address {choice % 3}", now)
        elif event == "end" and known:
            one = known[choice % len(known)]
            budget.end(one)
            del begun[one]
            admitted.pop(one, None)
        elif event == "ask" and known:
            budget.ask_for_step(known[choice % len(known)])
        elif event == "step":
            one_stepping = budget.next_step()
            assert one_stepping is None or one_stepping in begun
        changes = budget.update(now)
        for one in changes.expired:
            assert begun.pop(one)[1] + 10 <= now
            admitted.pop(one, None)
        for one in changes.crowded_out:
            begun.pop(one)
            since = admitted.pop(one, None)
            assert since is None or since + 1 <= now
        for one in changes.admitted:
            assert one not in admitted
            if one in begun:  # it may have been admitted and crowded out in one update
                admitted[one] = now
        assert budget.admitted_count == len(admitted) <= 4
        assert budget.waiting_count == len(begun) - len(admitted) <= 3
        counts = Counter(begun[one][0] for one in admitted)
        assert all(count <= 2 for count in counts.values())
        assert all(begun_at + 10 > now for _, begun_at in begun.values())
        moment = budget.next_update(now)
        assert (moment is None) == (not begun)
        assert moment is None or moment >= now


# --- Bytes ---


def record(size: int) -> bytes:
    return b"\x16\x03\x03" + size.to_bytes(2, "big") + bytes(size)


def test_whole_records() -> None:
    assert whole_records(b"") == 0
    assert whole_records(record(10)[:4]) == 0
    assert whole_records(record(10)[:-1]) == 0
    assert whole_records(record(10)) == 15
    assert whole_records(record(10) + record(0) + record(300)[:-1]) == 20
    assert whole_records(record(16_640)) == 16_645
    assert whole_records(record(16_641)[:5]) == 5, "OpenSSL refuses it"


def test_first_bytes() -> None:
    assert is_hello(b"\x16")
    assert is_hello(b"\x16\x03\x01")
    assert not is_hello(b"\x16\x02")
    assert not is_hello(b"\x15\x03")
    assert not is_hello(b"\0\0\0\x10")
