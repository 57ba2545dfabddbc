"""Places of the admin port: who ends when there are too many connections."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.admin.places import Places


def take(places: Places[str], one: str, address: str) -> str | None:
    return places.take(one, address, places_max=4, per_address_max=2)


def test_the_oldest_silent_connection_of_an_address_yields_to_a_new_one() -> None:
    places: Places[str] = Places()
    assert take(places, "a1", "10.0.0.1") is None
    assert take(places, "a2", "10.0.0.1") is None
    assert take(places, "b1", "10.0.0.2") is None
    assert take(places, "a3", "10.0.0.1") == "a1"
    assert take(places, "a4", "10.0.0.1") == "a2"
    assert len(places) == 3


def test_a_request_that_is_carried_out_keeps_its_place_until_it_is_answered() -> None:
    places: Places[str] = Places()
    for one in ("a1", "a2"):
        take(places, one, "10.0.0.1")
        places.work(one)
    assert take(places, "a3", "10.0.0.1") == "a3"
    places.rest("a2")
    places.rest("a1")
    assert take(places, "a4", "10.0.0.1") == "a2"


def test_when_all_places_are_taken_the_address_with_the_most_yields() -> None:
    places: Places[str] = Places()
    for one, address in (("a1", "1.0.0.1"), ("b1", "1.0.0.2"), ("b2", "1.0.0.2"), ("c", "1.0.0.3")):
        assert take(places, one, address) is None
    assert take(places, "d", "1.0.0.4") == "b1"
    # While every connection works, each keeps its place, and the new connection is refused.
    for one in ("a1", "b2", "c", "d"):
        places.work(one)
    assert take(places, "e", "1.0.0.5") == "e"


def test_one_host_has_many_addresses_of_ipv6() -> None:
    places: Places[str] = Places()
    found = [take(places, str(number), f"2001:db8::{number:x}") for number in range(3)]
    assert found == [None, None, "0"]


def test_a_connection_that_has_left_is_unknown() -> None:
    places: Places[str] = Places()
    take(places, "a", "10.0.0.1")
    for call in (places.leave, places.leave, places.work, places.rest):
        call("a")
    assert len(places) == 0
    assert not places._hosts


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "work", "rest", "leave"]), st.integers(0, 9)),
        max_size=60,
    )
)
def test_the_bounds_hold_after_any_order_of_calls(calls: list[tuple[str, int]]) -> None:
    places: Places[int] = Places()
    address_of: dict[int, str] = {}
    for name, number in calls:
        if name == "take" and number not in address_of:
            address_of[number] = f"10.0.0.{number % 3}"
            ended = places.take(number, address_of[number], places_max=4, per_address_max=2)
            if ended is not None:
                del address_of[ended]
        elif name == "leave":
            places.leave(number)
            address_of.pop(number, None)
        elif name in ("work", "rest"):
            getattr(places, name)(number)
        assert len(places) == len(address_of) <= 4
        for address in address_of.values():
            assert list(address_of.values()).count(address) <= 2
