"""A client that writes: it sends batches at their due times and times the answers on arrival.

One request has one batch of one partition. With acks=all batches are numbered, as by Kafka's own
clients. The first rejected batch ends the run. With a rate, latency counts from the due time of a
batch; without a rate, from its sending time.
"""

import random
import time
from typing import NamedTuple

from penstock.bench.assignment import Assignment
from penstock.bench.batches import Template, make_templates
from penstock.bench.lanes import Lanes
from penstock.bench.measurement import ClientResult
from penstock.bench.observing import Observer, Report
from penstock.bench.pacing import SECOND_NS, Shares, pacing_of
from penstock.client import calls
from penstock.client.calls import ProducerIdentity
from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address, parse_addresses
from penstock.client.transport.blocking import connect
from penstock.client.transport.call import raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.messages.produce import PartitionProduceResponse

_SEQUENCE_MASK = 0x7FFFFFFF
_NOBODY = ProducerIdentity(-1, -1)
_IDLE_SECONDS = 0.25
"""The longest wait without an interruption; between waits the client reports progress."""


class _Sent(NamedTuple):
    due_ns: int
    records: int
    size_bytes: int


_Answer = dict[TopicPartition, PartitionProduceResponse]


def open_cluster(assignment: Assignment) -> Cluster:
    """Return the cluster of an assignment."""
    seconds = assignment.workload.timeout_seconds
    return Cluster(
        parse_addresses(assignment.bootstrap),
        lambda address: connect(address, timeout_seconds=seconds, security=assignment.security),
        timeout_seconds=seconds,
    )


class Producer:
    """One client that writes."""

    def __init__(self, assignment: Assignment) -> None:
        """Connect and build the batches."""
        workload = assignment.workload
        self._assignment = assignment
        self._workload = workload
        self._lanes: Lanes[Address, _Sent] = Lanes(
            workload.requests_in_flight, workload.timeout_seconds, assignment.security
        )
        places = [TopicPartition(assignment.topic, one) for one in assignment.partitions]
        with open_cluster(assignment) as cluster:
            self._leaders: dict[int, Address] = {
                at.partition: leader.address for at, leader in cluster.leaders(places).items()
            }
            self._identity = cluster.start_producer() if workload.is_numbered else _NOBODY
        for address in self._leaders.values():
            self._lanes.open(address, address)
        chance = random.Random(workload.seed + assignment.client)  # noqa: S311 (no secret)
        self._templates = make_templates(
            workload, assignment.partitions, assignment.client, chance.random
        )
        self._sequences: dict[int, int] = {}
        self._payload_bytes = workload.batch_records * workload.size_bytes

    def run(self, begin_ns: int, report: Report) -> ClientResult:
        """Send until the work is done, and wait for every answer."""
        workload, assignment = self._workload, self._assignment
        shares = Shares(assignment.clients, assignment.client)
        batches = None
        if workload.count is not None:
            whole = -(-workload.count // workload.batch_records)
            batches = shares.of_count(whole)
        pacing = pacing_of(
            shares,
            begin_ns,
            warmup_seconds=workload.warmup_seconds,
            duration_seconds=workload.duration_seconds,
            batches=batches,
            batches_per_second=workload.rate and workload.rate / workload.batch_records,
        )
        observer = Observer(pacing.measured_ns, pacing.end_ns, report)

        def take(answer: _Answer, sent: _Sent) -> None:
            for at, one in answer.items():
                raise_error(one.error_code, one.error_message, str(at))
            observer.done(time.monotonic_ns(), sent.due_ns, sent.records, sent.size_bytes)

        number = 0
        while True:
            self._lanes.collect(take)
            now_ns = time.monotonic_ns()
            observer.tick(now_ns)
            due_ns = pacing.due_ns(now_ns)
            if due_ns is None and self._lanes.is_idle:
                break
            template = self._templates[number % len(self._templates)]
            has_room = due_ns is not None and self._lanes.has_room(
                self._leaders[template.partition]
            )
            if has_room and due_ns is not None and due_ns <= now_ns:
                self._send(template, due_ns)
                pacing.sent(due_ns)
                number += 1
            else:
                until_ns = due_ns if has_room and due_ns is not None else now_ns + SECOND_NS
                self._lanes.wait(min((until_ns - now_ns) / SECOND_NS, _IDLE_SECONDS))
        return observer.finish(time.monotonic_ns())

    def close(self) -> None:
        """Close the connections."""
        self._lanes.close()

    def _send(self, template: Template, due_ns: int) -> None:
        sequence = -1
        if self._workload.is_numbered:
            sequence = self._sequences.get(template.partition, 0)
            following = (sequence + template.record_count) & _SEQUENCE_MASK
            self._sequences[template.partition] = following
        data = template.stamped(
            now_ms=time.time_ns() // 1_000_000,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            sequence=sequence,
            run=self._assignment.run,
            due_ns=due_ns,
        )
        at = TopicPartition(self._assignment.topic, template.partition)
        call = calls.send_batches(
            {at: data},
            acks=self._workload.acks,
            timeout_ms=round(self._workload.timeout_seconds * 900),
        )
        self._lanes.send(
            self._leaders[template.partition],
            call,
            _Sent(due_ns, template.record_count, self._payload_bytes),
        )
