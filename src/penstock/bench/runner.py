"""`run` measures one broker, `compare` alternates between two; both delete their topics.

The steps of a measurement: create the topic, start the clients, fill the topic for reading, begin,
wait, add up the results, delete the topic. Workloads, shares and figures are computed elsewhere,
without IO.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from penstock.bench import assignment as words
from penstock.bench.assignment import Assignment, Progress
from penstock.bench.comparison import Comparison
from penstock.bench.crowd import Crowd
from penstock.bench.measurement import ClientResult, Measurement, joined
from penstock.bench.pacing import Shares
from penstock.bench.reading import NothingToReadError, nothing_to_read
from penstock.bench.topics import bench_topic
from penstock.bench.workload import CONSUME, END_TO_END, GROUPS, LOOKUP, PRODUCE, Workload
from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.client.cluster import Cluster
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.core.errors import ConfigError
from penstock.core.types import TopicPartition

FILL_BYTES: Final = 100_000_000
"""Bytes that fill a topic before it is read; a count may need less. Each partition gets a batch in
any case."""
FILL_CLIENTS_MAX: Final = 2

Watch = Callable[[str, Sequence[Progress]], None]
"""Called with the current part of the work, and the progress of each client."""


def run(
    workload: Workload,
    bootstrap: str,
    *,
    security: Security = NO_SECURITY,
    watch: Watch | None = None,
) -> Measurement:
    """Measure one broker; `security` is from `penstock.client.security.options.parse_security`."""
    watcher: Watch = watch or (lambda _part, _progress: None)
    with (
        _open(workload, bootstrap, security) as cluster,
        bench_topic(cluster, workload) as (topic, partitions),
    ):
        one = _Run(workload, bootstrap, security, topic, partitions, cluster, watcher)
        if workload.kind == PRODUCE:
            return one.of_role(words.PRODUCER, workload.clients)
        if workload.kind == CONSUME:
            return one.of_reading(words.READER)
        if workload.kind == LOOKUP:
            return one.of_reading(words.FINDER)
        if workload.kind == GROUPS:
            return one.of_role(words.MEMBERS, workload.clients)
        assert workload.kind == END_TO_END
        return one.of_the_whole_way()


def compare(
    workload: Workload,
    first: str,
    second: str,
    *,
    security: Security = NO_SECURITY,
    second_security: Security = NO_SECURITY,
    rounds: int = 3,
    watch: Watch | None = None,
) -> Comparison:
    """Measure two brokers alternately, several rounds of both."""
    if rounds < 1:
        raise ConfigError(f"{rounds} rounds compare nothing. Take one or more; three is good.")
    watcher: Watch = watch or (lambda _part, _progress: None)
    # Check that both brokers answer before the first measurement, which needs minutes.
    brokers = ((first, security), (second, second_security))
    for bootstrap, chosen in brokers:
        with _open(workload, bootstrap, chosen) as cluster:
            cluster.brokers()
    results: tuple[list[Measurement], list[Measurement]] = ([], [])
    for number in range(rounds):
        for (bootstrap, chosen), measured in zip(brokers, results, strict=True):
            label = f"round {number + 1} of {rounds}, {bootstrap}"
            labelled_watch = labelled(watcher, label)
            measured.append(run(workload, bootstrap, security=chosen, watch=labelled_watch))
    return Comparison(tuple(results[0]), tuple(results[1]))


def labelled(watch: Watch, label: str) -> Watch:
    """Return a watch that names the part of the work after a label."""
    return lambda part, progress: watch(f"{label}: {part}", progress)


def _open(workload: Workload, bootstrap: str, security: Security) -> Cluster:
    seconds = workload.timeout_seconds
    return Cluster(
        parse_addresses(bootstrap),
        lambda address: connect(address, timeout_seconds=seconds, security=security),
        timeout_seconds=seconds,
    )


class _Run:
    """One measurement on an existing topic."""

    def __init__(
        self,
        workload: Workload,
        bootstrap: str,
        security: Security,
        topic: str,
        partitions: tuple[int, ...],
        cluster: Cluster,
        watch: Watch,
    ) -> None:
        self._workload = replace(workload, partitions=len(partitions))
        self._bootstrap = bootstrap
        self._security = security.for_task()
        self._topic = topic
        self._partitions = partitions
        self._cluster = cluster
        self._watch = watch
        self._run_number = secrets.randbits(63)
        self._notes: list[str] = []

    def of_role(self, role: str, clients: int) -> Measurement:
        """Measure clients with the same role."""
        assignments = [self._assignment(role, n, clients) for n in range(clients)]
        with Crowd(assignments) as crowd:
            crowd.begin()
            results = crowd.finish(range(clients), self._watched("measuring"))
        return self._joined(results)

    def of_reading(self, role: str) -> Measurement:
        """Fill the topic first, unless the user named it; then each client reads its partitions."""
        if self._workload.topic is None:
            self._fill()
        self._partitions = self._partitions_with_records()
        readers = min(self._workload.clients, len(self._partitions))
        self._note_fewer(readers, "has records in")
        self._workload = replace(self._workload, clients=readers)
        return self.of_role(role, readers)

    def of_the_whole_way(self) -> Measurement:
        """Measure writers and readers together; the readers' figures are the result."""
        writers = self._workload.clients
        readers = min(writers, len(self._partitions))
        assignments = [self._assignment(words.PRODUCER, n, writers) for n in range(writers)]
        assignments += [self._assignment(words.FOLLOWER, n, readers) for n in range(readers)]
        self._note_fewer(readers, "has")
        reading = range(writers, writers + readers)
        watched = self._watched("measuring")
        with Crowd(assignments) as crowd:
            crowd.begin()
            loaders = crowd.finish(range(writers), watched, shown=reading)
            crowd.send_ends(reading, self._offsets(LATEST_TIMESTAMP))
            results = crowd.finish(reading, watched)
        return self._joined(results, loaders)

    def _fill(self) -> None:
        workload = self._workload
        records_min = workload.batch_records * len(self._partitions)
        records = max(FILL_BYTES // workload.size_bytes, records_min)
        if workload.count is not None:
            records = min(records, max(workload.count, records_min))
        filling = replace(
            workload, kind=PRODUCE, count=records, warmup_seconds=0.0, rate=None, acks=-1
        )
        # Each client writes to all partitions in turn: with few records only one client reaches the
        # last.
        clients = min(workload.clients, FILL_CLIENTS_MAX, records // records_min)
        with Crowd(
            [
                replace(
                    self._assignment(words.PRODUCER, n, clients),
                    workload=filling,
                )
                for n in range(clients)
            ]
        ) as crowd:
            crowd.begin()
            crowd.finish(range(clients), self._watched("filling the topic"))

    def _assignment(self, role: str, client: int, clients: int) -> Assignment:
        partitions = self._partitions
        if role in {words.READER, words.FOLLOWER, words.FINDER}:
            partitions = Shares(clients, client).of_list(partitions)
        return Assignment(
            role,
            self._workload,
            self._bootstrap,
            self._topic,
            partitions,
            client,
            clients,
            self._run_number,
            f"{self._topic}-{self._run_number:x}-{client}",
            self._security,
        )

    def _partitions_with_records(self) -> tuple[int, ...]:
        """Return the partitions with records; raise when there are none."""
        first, end = self._offsets(EARLIEST_TIMESTAMP), self._offsets(LATEST_TIMESTAMP)
        found = tuple(part for part in self._partitions if first[part] < end[part])
        if not found:
            raise NothingToReadError(nothing_to_read(self._topic))
        return found

    def _note_fewer(self, readers: int, what: str) -> None:
        asked = self._workload.clients
        if readers < asked:
            partitions = f"{readers} partition{'' if readers == 1 else 's'}"
            self._notes.append(
                f"{readers} of the {asked} clients could read: the topic {what} {partitions}, and "
                "a partition has one reader. More partitions let more of them read."
            )

    def _offsets(self, timestamp_ms: int) -> dict[int, int]:
        places = [TopicPartition(self._topic, part) for part in self._partitions]
        found = self._cluster.find_offsets(dict.fromkeys(places, timestamp_ms))
        return {at.partition: offset for at, offset in found.items()}

    def _watched(self, part: str) -> Callable[[Sequence[Progress]], None]:
        return lambda progress: self._watch(part, progress)

    def _joined(
        self, results: Sequence[ClientResult], loaders: Sequence[ClientResult] = ()
    ) -> Measurement:
        return joined(
            self._workload,
            self._bootstrap,
            results,
            loaders=loaders,
            cores=os.cpu_count() or 1,
            notes=self._notes,
        )
