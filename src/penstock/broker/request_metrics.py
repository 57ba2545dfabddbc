"""`RequestMetrics`: the number, the durations and the error codes of the requests of each API.

It is called for every request, so it adds numbers and does nothing else; rows are built when
metrics are read. Two times are kept apart. The duration goes from the complete arrival of a request
until its answer was handed to the socket: the client's waiting time without the network. It
includes waiting that the client requested, such as a fetch that waits for records. The handling
time is the event loop's time until the handler returned: every connection waits for it.

An API without requests has no rows. It does NOT read the clock by itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from penstock.core.metrics import (
    SECONDS_BOUNDS,
    Family,
    Histogram,
    HistogramRow,
    Histograms,
    Registry,
    Row,
    Table,
    TableRow,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode


class ApiMetrics:
    """The counters of one API."""

    __slots__ = ("durations", "handling_seconds", "name", "requests")

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.handling_seconds = 0.0
        self.durations = Histogram(SECONDS_BOUNDS)


class RequestMetrics:
    """The counters of all requests."""

    def __init__(
        self, api_keys: Iterable[int], monotonic: Callable[[], float], metrics: Registry
    ) -> None:
        self.monotonic = monotonic
        # By key, so that a lookup is an index; the keys between are never used.
        self._apis = [ApiMetrics(api_name(key)) for key in range(max(api_keys, default=0) + 1)]
        self._errors: dict[tuple[str, str], int] = {}
        columns = (
            ("requests_total", "Requests handled."),
            ("request_handling_seconds_total", "Time that handlers took of the event loop."),
        )
        metrics.table(Table(columns, ("api",), self._rows))
        metrics.histograms(
            "request_duration_seconds",
            Histograms(
                "From a whole request to its answer at the socket, waiting that was asked for too.",
                ("api",),
                self._duration_rows,
            ),
        )
        metrics.family(
            "request_errors_total",
            Family("Error codes in answers.", ("api", "code"), self._error_rows),
        )

    def handled(self, api_key: int, seconds: float) -> None:
        """Count the time until a handler returned."""
        api = self._apis[api_key]
        api.requests += 1
        api.handling_seconds += seconds

    def answered(self, api_key: int, seconds: float) -> None:
        """Count the time from a complete request until its answer was handed to the socket."""
        self._apis[api_key].durations.observe(seconds)

    def refused(self, api_key: int, codes: Sequence[ErrorCode]) -> None:
        """Count the errors of one answer."""
        name, errors = self._apis[api_key].name, self._errors
        for code in codes:
            key = (name, code.name)
            errors[key] = errors.get(key, 0) + 1

    def refused_often(self, api_key: int, counts: Mapping[ErrorCode, int]) -> None:
        """Count the errors of one answer, each as often as the answer contains it."""
        name, errors = self._apis[api_key].name, self._errors
        for code, count in counts.items():
            key = (name, code.name)
            errors[key] = errors.get(key, 0) + count

    def _rows(self) -> Iterator[TableRow]:
        for api in self._apis:
            if api.requests:
                yield TableRow((api.name,), (api.requests, api.handling_seconds))

    def _duration_rows(self) -> Iterator[HistogramRow]:
        for api in self._apis:
            if api.requests:
                yield api.durations.read((api.name,))

    def _error_rows(self) -> Iterator[Row]:
        for key, count in sorted(self._errors.items()):
            yield Row(key, count)


def api_name(key: int) -> str:
    """Kafka's name of an API: `ListOffsets`."""
    return ApiKey(key).name.title().replace("_", "")
