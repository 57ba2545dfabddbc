"""Record the outcomes of the whole matrix on Apache Kafka; takes a few minutes.

python -m tests.access_matrix.record            writes matrix.json
python -m tests.access_matrix.record --check    compares with matrix.json, and writes nothing
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.access_matrix import recorded
from tests.access_matrix.arrangement import Arrangement
from tests.access_matrix.grants import all_cells
from tests.access_matrix.kafka_target import kafka_target
from tests.access_matrix.running import run_cells
from tests.oracle.cache import progress
from tests.oracle.kafka_jars import KAFKA_VERSION

CELLS_PER_REPORT = 100


def main() -> int:
    """Record or check; the exit code is 1 if a check finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    is_check = parser.parse_args().check
    outcomes = _outcomes_on_kafka()
    if not is_check:
        text = recorded.text_of(outcomes, KAFKA_VERSION)
        recorded.FILE.write_text(text, encoding="utf-8")
        return 0
    differences = list(recorded.differences(recorded.read(), outcomes))
    for line in differences:
        print(line)
    print(f"{len(differences)} differences")
    return 1 if differences else 0


def _outcomes_on_kafka() -> recorded.Outcomes:
    cells = all_cells()
    begun = time.monotonic()
    outcomes = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        kafka_target(Path(folder), cells) as target,
    ):
        arrangement = Arrangement(target)
        arrangement.build()
        for cell, found in run_cells(target, cells, arrangement):
            outcomes[cell] = found
            if len(outcomes) % CELLS_PER_REPORT == 0:
                seconds = time.monotonic() - begun
                progress(f"{len(outcomes)} of {len(cells)} cells in {seconds:.0f} s")
        arrangement.close()
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
