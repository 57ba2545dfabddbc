"""For all tests: properties try a sample, and warnings about a slow machine are turned off.

A property without a number of its own tries 25 examples, or as many as PENSTOCK_EXAMPLES says
(`make test-development`: 200).

In development mode asyncio warns about callbacks that took over 100 ms. On a loaded machine that is
any of them, and tests that read the log would find it. In the same way Hypothesis fails an example
that took over 200 ms. How long something may take has tests of its own.

No broker of a test opens an admin port, unless the test is about it: there is one port 8080.
"""

import gc
import logging
import os

import pytest
from hypothesis import HealthCheck, settings

from tests.marked_files import MarkedFiles
from tests.one_parser import parse_one_at_a_time
from tests.oracle.recorded_runs import RecordedRuns
from tests.sampling import Sampling

pytest_plugins = ["pytester"]

parse_one_at_a_time()
logging.getLogger("asyncio").setLevel(logging.ERROR)
os.environ.setdefault("PENSTOCK_ADMIN__ENABLED", "false")

settings.register_profile(
    "sample",
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "25")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sample")

LONG_FIRST = tuple(
    f"tests/interop/test_{name}.py" for name in ("groups", "clients", "kafka_tools", "admin_port")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes begin first: two processes then end at about the same time."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG_FIRST))


def pytest_collection_finish() -> None:
    """Ten thousand tests and their modules stay until the end: no collection visits them."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Extension modules report what is left at the end of the process: let it be freed."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: golden files get what really happens; read the difference before a commit."""
    parser.addoption("--rewrite", action="store_true", help="write golden files anew")
    parser.addoption("--live-kafka", action="store_true", help="run recorded tests on Kafka too")
    parser.addoption("--record-kafka", action="store_true", help="the same, and record them")
    parser.addoption(
        "--sample-of",
        type=int,
        default=1,
        metavar="N",
        help="run one test of N, chosen by the seed",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Leave out tests that passed on Apache Kafka with the same content, or outside the sample."""
    config.pluginmanager.register(RecordedRuns(config))
    config.pluginmanager.register(Sampling(config))
    config.pluginmanager.register(MarkedFiles(config))
