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

PHASES = ("unloaded", "idle", "mix", *ATTACKS)


def main() -> None:
    port, role = int(sys.argv[1]), sys.argv[2]
    client = Producer(port) if role == "produce" else Reader(port)
    answers: dict[str, Callable[[], object]] = {
        f"phase {name}": partial(client.begin, name) for name in PHASES
    }
    answers["stop"] = client.stop
    if isinstance(client, Producer):
        answers["verify"] = client.verify
    serve(answers)


if __name__ == "__main__":
    main()
