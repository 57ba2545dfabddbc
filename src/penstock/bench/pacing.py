"""`Pacing`: the due time of each batch, and the end of a client's work (pure).

Without a rate a batch is due as soon as it can be sent. With a rate batches are due at fixed times,
also when earlier batches were late. Latency counts from the due time. So a broker that stops for a
second is charged for every batch that had to wait, not only for the batch that it held. The clients
alternate, so that all of them together keep the rate.

The clock is an argument. Times are nanoseconds of the machine's monotonic clock, which all clients
on a machine share.
"""

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Pacing:
    """The schedule of one client."""

    begin_ns: int
    """The begin of the warm-up."""
    measured_ns: int
    """The end of the warm-up."""
    end_ns: int | None
    """The end of sending; None with a count."""
    batches: int | None = None
    """Batches to send after the warm-up; None with a duration."""
    interval_ns: float | None = None
    """Time between two batches of this client; None without a rate."""
    phase_ns: float = 0.0
    """The delay of this client's begin after the first client's."""
    _sent: int = 0
    _sent_measured: int = 0

    def due_ns(self, now_ns: int) -> int | None:
        """Return the due time of the next batch; None when there is none."""
        if self.batches is not None and self._sent_measured >= self.batches:
            return None
        due = now_ns
        if self.interval_ns is not None:
            due = round(self.begin_ns + self.phase_ns + self._sent * self.interval_ns)
        else:
            due = max(now_ns, self.begin_ns)
        if self.end_ns is not None and due >= self.end_ns:
            return None
        return due

    def sent(self, due_ns: int) -> None:
        """Note that the batch with this due time was sent."""
        self._sent += 1
        if due_ns >= self.measured_ns:
            self._sent_measured += 1

    def is_measured(self, due_ns: int) -> bool:
        """Whether a batch with this due time counts."""
        return due_ns >= self.measured_ns and (self.end_ns is None or due_ns < self.end_ns)


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of one client in the whole work."""

    clients: int
    client: int

    def of_count(self, whole: int) -> int:
        """Return this client's part of a number; the parts add up."""
        return whole // self.clients + (1 if self.client < whole % self.clients else 0)

    def of_list(self, partitions: tuple[int, ...]) -> tuple[int, ...]:
        """Return this client's part of the partitions, dealt in turns."""
        return partitions[self.client :: self.clients]


def pacing_of(
    shares: Shares,
    begin_ns: int,
    *,
    warmup_seconds: float,
    duration_seconds: float,
    batches: int | None,
    batches_per_second: float | None,
) -> Pacing:
    """Return the schedule of one client; `batches` is its part, the rate is for all clients."""
    measured_ns = begin_ns + round(warmup_seconds * SECOND_NS)
    end_ns = None if batches is not None else measured_ns + round(duration_seconds * SECOND_NS)
    if batches_per_second is None:
        return Pacing(begin_ns, measured_ns, end_ns, batches)
    between_ns = SECOND_NS / batches_per_second
    return Pacing(
        begin_ns,
        measured_ns,
        end_ns,
        batches,
        interval_ns=between_ns * shares.clients,
        phase_ns=between_ns * shares.client,
    )
