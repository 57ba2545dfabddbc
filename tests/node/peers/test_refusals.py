"""Two refused connections within a short time are reported; other failures are not."""

from penstock.node.peers.refusals import Refusals


def test_two_refusals_of_a_broker_that_accepted_connections_are_reported_once() -> None:
    refusals = Refusals()
    refusals.worked(2, 5)
    assert [refusals.refused(2, 5, now) for now in (1.0, 1.2, 1.3, 1.4)] == [
        False,
        True,
        False,
        True,
    ]


def test_a_broker_that_never_accepted_a_connection_is_not_reported() -> None:
    refusals = Refusals()
    assert not any(refusals.refused(2, 5, now) for now in (1.0, 1.1, 1.2))


def test_refusals_of_another_registration_do_not_count() -> None:
    refusals = Refusals()
    refusals.worked(2, 5)
    assert not any(refusals.refused(2, 6, now) for now in (1.0, 1.1, 1.2))
    refusals.worked(2, 6)
    assert not refusals.refused(2, 6, 2.0)
    assert refusals.refused(2, 6, 2.1)


def test_refusals_that_lie_apart_are_not_reported() -> None:
    refusals = Refusals()
    refusals.worked(2, 5)
    assert not any(refusals.refused(2, 5, now) for now in (1.0, 1.4, 1.8))


def test_a_connection_in_between_begins_anew() -> None:
    refusals = Refusals()
    refusals.worked(2, 5)
    assert not refusals.refused(2, 5, 1.0)
    refusals.worked(2, 5)
    assert not refusals.refused(2, 5, 1.1)


def test_a_broker_that_is_gone_is_forgotten() -> None:
    refusals = Refusals()
    refusals.worked(2, 5)
    refusals.forget(2)
    assert len(refusals) == 0
    assert not any(refusals.refused(2, 5, now) for now in (1.0, 1.1))
