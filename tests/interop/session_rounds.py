"""A round: six clients read one topic each, while the time of their logins passes.

Guarantees: in a round of `Sessions.of` all clients read at the same time, each with its own
connections and topic. When all have connected, one record is written to each topic every
`TICK_SECONDS`. `Reading` has the records that a client read, in its order, and the number of
connections that it opened meanwhile. Both mean the same for every client and broker.

A round is disturbed if the machine stood still or its clock was set meanwhile: a record was written
late, or the time of day moved apart from the monotonic clock. Sessions and tokens end in such a
round without a chance of a renewal, so another round replaces it, and what was lost or read twice
is judged all the same.

It is NOT a measurement of speed: a connection of less than 20 ms may be missed.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.interop.client_drivers import CLIENTS, DriverError, DriverProcess
from tests.interop.connection_watch import ConnectionWatch
from tests.interop.driver_protocol import Fetch, Record, Security
from tests.interop.secured_settings import driver_security
from tests.oracle.certificates import Validity
from tests.oracle.secured_brokers import secured_broker
from tests.oracle.secured_kafka import (
    OAUTHBEARER,
    PLAIN,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    USER,
)
from tests.oracle.secured_penstock import SecuredBroker

Settings = dict[str, str | int | float | bool]

SESSION_MS: Final = 2_300
"""A session on SASL_SSL ends after this time. On SASL_PLAINTEXT only a token's end ends one.

franz-go renews a second before the end, and a broker accepts no two renewals within a second.
"""
TICK_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 20.0

MUTUAL_TLS: Final = "mTLS"
ENDING_TOKEN: Final = "ending token"
WARM_UP: Final = "warm-up"
ROUNDS_MAX: Final = 4
DISTURBED_SECONDS: Final = 0.5
"""A client renews its session about this long before the end."""

CERTIFICATE_SECONDS: Final = 6
"""A client certificate expires this long after its round began."""
TOKEN_SECONDS: Final = 5
SETTLE_SECONDS: Final = {WARM_UP: 0.0}
SETTLE_SECONDS_DEFAULT: Final = 1.0
"""All clients have connected when none has for this long; less than a session."""
WRITE_SECONDS: Final = {MUTUAL_TLS: 6.5, ENDING_TOKEN: 6.5, WARM_UP: TICK_SECONDS}
WRITE_SECONDS_DEFAULT: Final = 4.5
"""From then on. With the time before it, more than two sessions."""
READ_SECONDS: Final = {ENDING_TOKEN: 1.0}
READ_SECONDS_DEFAULT: Final = 10.0
"""A client has this time after the last record was written."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How one client fared in a round."""

    values: tuple[int, ...]
    """The records, in its order."""
    error: str
    """The kind of the error that ended it, or an empty text."""
    opened: int
    """How many connections it opened while records were written."""


@dataclasses.dataclass(frozen=True)
class Round:
    """How many records were written to each topic, and how each client fared."""

    count: int
    readings: Mapping[str, Reading]
    disturbed_seconds: float = 0.0
    """The longest delay of a record, or how far the time of day moved, if that is more."""

    @property
    def is_disturbed(self) -> bool:
        """Whether the machine stood still for a while, or its clock was set."""
        return self.disturbed_seconds > DISTURBED_SECONDS


class Sessions:
    """The rounds on one broker."""

    def __init__(self, broker: SecuredBroker, drivers: Mapping[str, DriverProcess]) -> None:
        self.broker = broker
        self._drivers = drivers
        address = broker.bootstrap(PLAINTEXT)
        plaintext: Settings = {"bootstrap.servers": address, "log_level": 0}
        self._admin = AdminClient(plaintext)
        self._writer = Producer({**plaintext, "linger.ms": 0})
        self._rounds: dict[str, list[Round]] = {}

    def of(self, way: str, is_clear: Callable[[Round], bool] = lambda _done: True) -> list[Round]:
        """The rounds with this kind of credential; they are run when they are first asked for.

        There is one, or up to `ROUNDS_MAX` until one is clear and was not disturbed: on a busy
        machine a client may renew its session too late.
        """
        if not self._rounds:
            # The first connection of a program takes longer than the others.
            self._rounds[WARM_UP] = [self._run(WARM_UP, WARM_UP, self._security(PLAIN))]
        rounds = self._rounds.setdefault(way, [])
        while not rounds or (
            len(rounds) < ROUNDS_MAX and (rounds[-1].is_disturbed or not is_clear(rounds[-1]))
        ):
            name = f"{way.replace(' ', '-')}-{len(rounds)}"
            rounds.append(self._run(way, name, self._security(way)))
        return rounds

    def _security(self, way: str) -> Security:
        broker = self.broker
        if way == MUTUAL_TLS:
            validity = Validity(-1, CERTIFICATE_SECONDS / 86_400)
            return driver_security(broker, SSL, identity=broker.authority.client(validity=validity))
        if way == ENDING_TOKEN:
            token = broker.tokens.token(lifetime_seconds=TOKEN_SECONDS)
            return driver_security(broker, SASL_PLAINTEXT, OAUTHBEARER, token=token)
        if way == OAUTHBEARER:
            return driver_security(broker, SASL_SSL, way, token=broker.tokens.token())
        return driver_security(broker, SASL_SSL, way, user=USER, password=broker.password(way))

    def _run(self, way: str, name: str, security: Security) -> Round:
        topics = {client: f"{client}-{name}" for client in CLIENTS}
        new = [NewTopic(topic, 1, 1) for topic in topics.values()]
        for created in self._admin.create_topics(new).values():
            created.result(ANSWER_SECONDS)
        # Kafka's broker learns of a topic a moment after its controller has created it.
        self._write_all(topics.values(), 0)
        for driver in self._drivers.values():
            driver.secure(security)
        seconds = WRITE_SECONDS.get(way, WRITE_SECONDS_DEFAULT)
        count = 1 + round(seconds / TICK_SECONDS)
        timeout_ms = round(1000 * (seconds + READ_SECONDS.get(way, READ_SECONDS_DEFAULT)))
        processes = {client: driver.pid for client, driver in self._drivers.items()}
        watch = ConnectionWatch(processes, self.broker.ports[security["protocol"]])
        with ThreadPoolExecutor(len(CLIENTS)) as pool:
            calls = {
                client: pool.submit(
                    self._drivers[client].fetch,
                    Fetch(topic, 0, "earliest", count, timeout_ms=timeout_ms),
                )
                for client, topic in topics.items()
            }
            watch.wait_until_settled(SETTLE_SECONDS.get(way, SETTLE_SECONDS_DEFAULT))
            begun = time.monotonic()
            clock = ClockWatch()
            for number in range(1, count):
                self._write_all(topics.values(), number)
                clock.note(begun + number * TICK_SECONDS)
                watch.look_until(begun + number * TICK_SECONDS)
            wait(calls.values())
        readings = {
            client: _reading(call, watch.opened_since(client, begun))
            for client, call in calls.items()
        }
        return Round(count, readings, clock.disturbed_seconds())

    def _write_all(self, topics: Iterable[str], number: int) -> None:
        """Write the record of this number to each topic."""
        for topic in topics:
            self._writer.produce(topic, b"%d" % number, partition=0)
        assert self._writer.flush(ANSWER_SECONDS) == 0


class ClockWatch:
    """How late the steps of a round are, and how far the time of day moves meanwhile."""

    def __init__(self) -> None:
        self._apart = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        self._late_seconds_max = 0.0

    def note(self, due: float) -> None:
        """Note that a step that was due at this time of the monotonic clock is done."""
        self._late_seconds_max = max(self._late_seconds_max, time.monotonic() - due)

    def disturbed_seconds(self) -> float:
        """The longest delay of a step, or how far the time of day has moved, if that is more."""
        moved = abs(time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic() - self._apart)
        return max(self._late_seconds_max, moved)


def _reading(call: "Future[list[Record]]", opened: int) -> Reading:
    try:
        values = tuple(int(record.value or b"-1") for record in call.result())
    except DriverError as raised:
        return Reading((), raised.error.kind, opened)
    return Reading(values, "", opened)


@contextmanager
def sessions_on(name: str, folder: Path) -> Iterator[Sessions]:
    """Start the broker of this name and all drivers, and stop them at the end."""
    with ExitStack() as stack:
        sessions = {SASL_SSL: SESSION_MS}
        broker = stack.enter_context(secured_broker(name, folder, reauthentication_ms=sessions))
        drivers = {}
        for client in CLIENTS:
            drivers[client] = DriverProcess(client, broker.bootstrap(PLAINTEXT))
            stack.callback(drivers[client].close)
        yield Sessions(broker, drivers)
