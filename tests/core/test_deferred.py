"""A deferred result reaches its one listener, whichever comes first."""

import pytest

from penstock.core.deferred import Deferred


def test_listener_first() -> None:
    deferred: Deferred[int] = Deferred()
    got: list[int] = []
    deferred.then(got.append)
    assert not deferred.is_set
    deferred.set(3)
    assert got == [3]


def test_result_first() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.set(3)
    got: list[int] = []
    deferred.then(got.append)
    assert got == [3]


def test_a_second_result_is_a_broken_invariant() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.set(1)
    with pytest.raises(AssertionError):
        deferred.set(2)
