"""One broker process for all bad inputs of a run, deep in a folder that it must not leave."""

from collections.abc import Iterator

import pytest

from tests.bad_input.ward import Ward
from tests.oracle.penstock_broker import penstock_broker


@pytest.fixture(scope="session")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """A broker as a process of its own, with its topics made."""
    outside = tmp_path_factory.mktemp("outside")
    with penstock_broker(outside / "one" / "two" / "broker") as broker:
        made = Ward(broker, outside)
        yield made
        made.close()
