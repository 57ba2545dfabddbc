"""Checks during a run whether a broker responds, and the lag of the table.

Spark waits silently while no broker responds, and reports a lag only with a batch. So a thread with
its own connection checks every few seconds, with a timeout. The result is only displayed: it never
stops a pipeline, and nothing depends on it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread
from typing import Final, Protocol

from penstock.client.opening import open_cluster
from penstock.core.errors import PenstockError
from penstock.spark.offsets import StreamOffset
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import SourceOptions

LOOK_SECONDS: Final = 3.0
ANSWER_MS_MAX: Final = 3_000
"""Longer than any response of a healthy broker."""


class BrokerListener(Protocol):
    """Receives the results, in a separate thread."""

    def broker_seen(self, lags: Mapping[str, int]) -> None:
        """Handle a responding broker; `lags`: offsets by topic that are not in the table yet."""

    def broker_away(self, problem: str) -> None:
        """Handle the state that no broker responds."""


def look(ask: Callable[[], Mapping[str, int]], listener: BrokerListener) -> None:
    """Check once, and report to the listener."""
    try:
        lags = ask()
    except (PenstockError, OSError) as error:
        # The first of several addresses is enough for a line that is rewritten.
        listener.broker_away(str(error).partition(".; ")[0].rstrip("."))
    else:
        listener.broker_seen(lags)


@contextmanager
def watching(
    options: SourceOptions,
    lags_of: Callable[[StreamOffset], Mapping[str, int]],
    listener: BrokerListener,
) -> Iterator[None]:
    """Check until the end of the block, which waits for the current check."""
    client = replace(
        options.client, request_timeout_ms=ANSWER_MS_MAX, retry_timeout_ms=ANSWER_MS_MAX
    )
    is_over = Event()

    def looks() -> None:
        cluster = open_cluster(client, repeats_first_contact=False)
        try:
            lookups = Lookups(cluster, options)
            while not is_over.wait(LOOK_SECONDS):
                look(lambda: lags_of(lookups.latest()), listener)
        finally:
            cluster.close()

    thread = Thread(target=looks, name="penstock-broker-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
