"""Key distributions of a workload: no keys, uniform, or few frequent keys (pure).

In `zipf` the key of rank r has a weight of 1/r: the first of ten thousand keys has a tenth of all
records. So one partition gets more records than the others, as with real customers. The caller
passes the source of numbers between 0 and 1, so a seed repeats a run.
"""

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate

from penstock.bench.workload import NO_KEYS, UNIFORM

Draw = Callable[[], float]
"""Returns a number from 0 up to 1, as `random.Random.random`."""


def key_source(distribution: str, key_count: int, draw: Draw) -> Callable[[], bytes | None]:
    """Return a function that returns the key of the next record."""
    if distribution == NO_KEYS:
        return lambda: None
    keys = [b"key-%08d" % number for number in range(key_count)]
    if distribution == UNIFORM:
        return lambda: keys[int(draw() * key_count)]
    totals = list(accumulate(1 / rank for rank in range(1, key_count + 1)))
    return lambda: keys[min(bisect(totals, draw() * totals[-1]), key_count - 1)]
