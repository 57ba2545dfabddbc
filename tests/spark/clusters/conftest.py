"""For tests of where Spark runs: one broker, and one cluster of each kind for each file."""

from collections.abc import Iterator

import pytest

from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.spark.clusters.standalone import StandaloneCluster

LOCAL_CLUSTER = "local-cluster[2,1,1024]"


@pytest.fixture(scope="module")
def filled_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker of this file's own."""
    with penstock_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster


@pytest.fixture
def master(request: pytest.FixtureRequest) -> str:
    """The master of a kind of cluster: of the standalone one only if a test asks for it."""
    if request.param == "standalone":
        cluster: StandaloneCluster = request.getfixturevalue("standalone")
        return cluster.url
    return LOCAL_CLUSTER
