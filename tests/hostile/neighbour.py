"""The measured client: `python -m tests.hostile.neighbour PORT produce|fetch`.

It is the well-behaved client of the soak, with a phase for each attack (`phase NAME`), so that each
attack has latencies of its own.
"""

import sys
from collections.abc import Callable
from functools import partial

from tests.hostile.attacker import ATTACKS
from tests.soak.well_behaved import Producer, Reader
from tests.soak.worker import serve

INTERVAL_SECONDS = 0.01
"""A hundred requests a second: a p99 of ten seconds is not decided by five of them, and the client,
which waits for each answer, does not fall behind while an answer takes 10 ms."""
PHASES = ("unloaded", "idle", "mix", *ATTACKS)


def main() -> None:
    port, role = int(sys.argv[1]), sys.argv[2]
    kind = Producer if role == "produce" else Reader
    client = kind(port, INTERVAL_SECONDS)
    answers: dict[str, Callable[[], object]] = {
        f"phase {name}": partial(client.begin, name) for name in PHASES
    }
    answers["stop"] = client.stop
    if isinstance(client, Producer):
        answers["verify"] = client.verify
    serve(answers)


if __name__ == "__main__":
    main()
