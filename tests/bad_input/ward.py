"""`Ward`: a broker that is given bad inputs, a well-behaved connection beside them, and the checks.

After each case these must hold, or `check` fails: the process lives; the well-behaved connection,
which was open all the time, gets a produce and a fetch answered in time; the broker is not larger
than the case allows and holds no more descriptors; no log has a byte that was rejected; no
directory was created or deleted, inside the data directory or around it; and the broker's own log
has neither a traceback nor a line injected by a client.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.produce import ProduceResponse
from tests.bad_input.batches import PRODUCE_VERSION, TOPICS, WITNESS, good, produce
from tests.bad_input.case import CLOSED, CODES, Case, Outcome
from tests.bad_input.wire import Peer, decoded
from tests.oracle.running_broker import RunningBroker

WITNESS_SECONDS_MAX: Final = 2.0
"""A produce and a fetch take a few milliseconds; the rest is for a machine that is shared."""
DESCRIPTORS_MORE_MAX: Final = 2
"""Files of the log may have been opened."""

SETTLE_SECONDS_MAX: Final = 5.0
"""A broker sees the end of a connection at its next turn."""

_FORGED: Final = re.compile(r"^2026-01-01 00:00:00,000", re.MULTILINE)


class Witness:
    """One connection that produces and fetches, and expects to be served."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._peer = Peer(port)

    def round_trip(self) -> float:
        """Produce a batch, fetch it, and return the seconds that took."""
        began = time.monotonic()
        try:
            self._produce_and_fetch()
        except BaseException:
            # One failure is one failure: the next case has a connection that is in step.
            self._peer.close()
            self._peer = Peer(self._port)
            raise
        return time.monotonic() - began

    def _produce_and_fetch(self) -> None:
        self._peer.send(produce(good(1), topic=WITNESS))
        answer = self._peer.answer()
        assert answer is not None, "the connection that behaved was closed"
        response = decoded(0, PRODUCE_VERSION, answer)
        assert isinstance(response, ProduceResponse)
        stored = response.responses[0].partition_responses[0]
        assert stored.error_code == ErrorCode.NONE
        partition = FetchPartition(
            partition=0, fetch_offset=stored.base_offset, partition_max_bytes=100_000
        )
        topic = FetchTopic(topic=WITNESS, topic_id=None, partitions=(partition,))
        found = self._peer.call(FetchRequest(max_wait_ms=1_000, min_bytes=1, topics=(topic,)), 12)
        assert isinstance(found, FetchResponse)
        records = found.responses[0].partitions[0].records
        assert records, "a record that was acknowledged is not there"

    def close(self) -> None:
        self._peer.close()


@dataclass(frozen=True, slots=True)
class Vitals:
    """The values that a case may change, as they were before."""

    rss_bytes: int
    descriptors: int
    log_bytes: int
    directories: frozenset[str]
    outside: frozenset[Path]
    own_log_characters: int


def create_topics(port: int) -> None:
    """Make the topics that the cases are about."""
    with Peer(port) as peer:
        made = peer.call(
            CreateTopicsRequest(
                topics=tuple(
                    CreatableTopic(
                        name=name,
                        num_partitions=1,
                        replication_factor=1,
                        assignments=(),
                        configs=tuple(
                            CreatableTopicConfig(name=key, value=value)
                            for key, value in settings.items()
                        ),
                    )
                    for name, settings in TOPICS.items()
                ),
                timeout_ms=10_000,
            ),
            5,
        )
        assert isinstance(made, CreateTopicsResponse)
        assert {topic.error_code for topic in made.topics} == {ErrorCode.NONE}


def outcome_of(port: int, case: Case) -> Outcome:
    """Send the bytes of a case on a connection of its own and tell what came of it."""
    data = case.sent()
    with Peer(port) as peer:
        peer.send(data)
        if case.finishes:
            peer.finish_sending()
        answer = peer.answer()
        if answer is None:
            return CLOSED
        api_key, version = (int.from_bytes(data[at : at + 2], signed=True) for at in (4, 6))
        return CODES[api_key](decoded(api_key, version, answer))


class Ward:
    """A running broker and everything that is watched about it."""

    def __init__(self, broker: RunningBroker, outside: Path) -> None:
        """`outside` is a folder above the broker's, which it must leave alone."""
        self.broker = broker
        self.port = broker.port
        self._outside = outside
        self._process = psutil.Process(broker.pid)
        create_topics(broker.port)
        self.witness = Witness(broker.port)
        self.witness.round_trip()

    def close(self) -> None:
        self.witness.close()

    def vitals(self) -> Vitals:
        """How the broker is now."""
        data = self.broker.data_dir
        return Vitals(
            rss_bytes=self.broker.usage().rss_bytes,
            descriptors=self._process.num_fds(),
            log_bytes=sum(path.stat().st_size for path in data.glob("victim*/*.log")),
            directories=frozenset(path.name for path in data.iterdir() if path.is_dir()),
            outside=frozenset(self._paths_outside()),
            own_log_characters=len(self.broker.log_text()),
        )

    def _settled(self, before: Vitals, memory_bytes_max: int) -> Vitals:
        """The vitals when connections that were closed are gone, or when they should be."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            after = self.vitals()
            is_settled = (
                after.rss_bytes - before.rss_bytes < memory_bytes_max
                and after.descriptors <= before.descriptors + DESCRIPTORS_MORE_MAX
            )
            if is_settled or time.monotonic() > deadline:
                return after
            time.sleep(0.01)

    def _paths_outside(self) -> Iterator[Path]:
        pending = [self._outside]
        while pending:
            for path in pending.pop().iterdir():
                yield path
                if path.is_dir() and path != self.broker.data_dir:
                    pending.append(path)

    @contextmanager
    def watched(self, *, memory_bytes_max: int, grows_log: bool = False) -> Iterator[None]:
        """Whatever is done inside must leave the broker as it was."""
        before = self.vitals()
        yield
        self.check(before, memory_bytes_max=memory_bytes_max, grows_log=grows_log)

    def check(self, before: Vitals, *, memory_bytes_max: int, grows_log: bool = False) -> None:
        """Assert that nothing but the culprit was harmed."""
        own_log = self.broker.log_text()[before.own_log_characters :]
        assert self.broker.is_running(), f"the broker is dead:\n{own_log}"
        seconds = self.witness.round_trip()
        assert seconds < WITNESS_SECONDS_MAX
        after = self._settled(before, memory_bytes_max)
        assert after.rss_bytes - before.rss_bytes < memory_bytes_max
        assert after.descriptors <= before.descriptors + DESCRIPTORS_MORE_MAX
        if not grows_log:
            assert after.log_bytes == before.log_bytes, "what was refused is in the log"
        assert after.directories == before.directories
        assert after.outside == before.outside, "a file outside the data directory"
        assert "Traceback" not in own_log, own_log
        assert _FORGED.search(own_log) is None, "a client wrote a line of the log"
