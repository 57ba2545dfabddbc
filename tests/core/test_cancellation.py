"""`Cancellation`: listeners are called once, and not after they were removed."""

from penstock.core.cancellation import Cancellation


def test_listeners_are_called_once() -> None:
    token, calls = Cancellation(), []
    token.subscribe("a", lambda: calls.append("a"))
    token.subscribe("b", lambda: calls.append("b"))
    token.unsubscribe("b")
    token.cancel()
    token.cancel()
    assert token.is_cancelled
    assert calls == ["a"]


def test_a_listener_that_comes_too_late_is_not_kept() -> None:
    token, calls = Cancellation(), []
    token.unsubscribe("nobody")
    token.cancel()
    token.subscribe("a", lambda: calls.append("a"))
    token.cancel()
    assert calls == []
