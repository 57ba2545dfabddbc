"""Handshakes on a loop by hand: one step in each turn, time limits, and floods."""

import pytest

from penstock.broker.tls.handshake_failures import show_failures
from penstock.broker.tls.tls_limits import HandshakeLimits
from penstock.core.metrics import Registry
from tests.broker.tls.tls_stage import Connection, Stage


def say_hello(connection: Connection) -> None:
    connection.client_step()
    connection.deliver(connection.written())


def test_one_handshake_runs_in_each_turn() -> None:
    stage = Stage()
    connections = [stage.connect(address=f"192.0.2.{number}") for number in range(10)]
    for connection in connections:
        say_hello(connection)
    assert [bool(one.raw.sent) for one in connections] == [True] + [False] * 9
    for number in range(1, 10):
        stage.loop.turn()
        assert [bool(one.raw.sent) for one in connections].count(True) == number + 1


def test_a_single_handshake_does_not_wait() -> None:
    stage = Stage()
    connection = stage.connect()
    say_hello(connection)
    assert connection.raw.sent


def test_a_silent_client_is_closed_in_time(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    silent, half = stage.connect(address="192.0.2.1"), stage.connect(address="192.0.2.2")
    half.client_step()
    half.deliver(half.written()[:30])
    stage.loop.advance(9.9)
    assert silent.is_open()
    assert half.is_open()
    stage.loop.advance(0.2)
    assert not silent.is_open()
    assert not half.is_open()
    assert stage.failed() == {"timed_out": 2}
    assert "took too long" in caplog.text


def test_a_complete_handshake_has_no_time_limit() -> None:
    stage = Stage()
    connection = stage.secured()
    stage.loop.advance(100)
    connection.send(b"request")
    assert connection.inner.received == b"request"


def test_two_thousand_silent_clients_are_bounded() -> None:
    """Also in TLS state: none of them has any."""
    stage = Stage()
    silent = [stage.connect() for _ in range(2_000)]
    assert stage.counts() == (16, 1_024)
    assert sum(not one.raw.is_closed for one in silent) == 1_040
    assert stage.failed() == {"crowded_out": 960}
    honest = stage.connect(address="198.51.100.1")
    honest.shake_hands()
    assert honest.inner.calls == ["made", "secured"]
    stage.loop.advance(11)
    assert all(one.raw.is_closed for one in silent)
    assert stage.counts() == (0, 0)


def test_a_host_with_a_hundred_clients_is_served() -> None:
    stage = Stage()
    connections = [stage.connect() for _ in range(100)]
    assert stage.turns.unfinished_count == 16
    for connection in connections:
        say_hello(connection)
    for connection in connections:
        stage.loop.settle()
        connection.shake_hands()
    assert all(one.inner.calls == ["made", "secured"] for one in connections)
    assert stage.failed() == {}


def test_a_waiting_client_is_not_read() -> None:
    stage = Stage(limits=HandshakeLimits(per_address_max=1))
    first, second = stage.connect(), stage.connect()
    say_hello(second)
    assert second.raw.is_read_paused
    assert not second.raw.sent
    say_hello(first)
    stage.loop.settle()
    first.shake_hands()
    stage.loop.settle()
    assert second.inner.out.is_reading()
    second.shake_hands()
    assert second.inner.calls == ["made", "secured"]


def test_a_silent_client_yields_to_one_that_waits() -> None:
    stage = Stage(limits=HandshakeLimits(per_address_max=1))
    silent, second = stage.connect(), stage.connect()
    say_hello(second)
    stage.loop.advance(0.5)
    assert silent.is_open()
    stage.loop.advance(0.7)
    assert not silent.is_open()
    assert second.raw.sent
    assert stage.failed() == {"crowded_out": 1}


def test_other_limits_are_followed() -> None:
    stage = Stage(limits=HandshakeLimits(per_address_max=1))
    stage.connect()
    stage.connect()
    assert stage.counts() == (1, 1)
    stage.turns.follow(HandshakeLimits())
    assert stage.counts() == (2, 0)


def test_timers_end_with_the_listener() -> None:
    stage = Stage()
    stage.connect()
    stage.turns.stop()
    assert all(timer.is_cancelled for timer in stage.loop.timers)


def test_counts_are_metrics() -> None:
    stage = Stage()
    stage.secured()
    stage.connect().deliver(b"GET /")
    metrics = Registry()
    show_failures(metrics, {"CLIENTS": stage.failures})
    values = metrics.snapshot()
    assert values['tls_handshakes_total{listener="CLIENTS"}'] == 1
    assert values['tls_handshakes_failed_total{listener="CLIENTS",reason="not_tls"}'] == 1
    assert values['tls_handshakes_failed_total{listener="CLIENTS",reason="timed_out"}'] == 0
