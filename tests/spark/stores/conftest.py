"""One S3 store and one REST catalog for the whole run, started at their first use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.iceberg_rest import rest_catalog
from tests.oracle.object_store import object_store
from tests.spark.stores.lake import BUCKET, Lake

# Nessie needs Java 21 and a download of 245 MB: `tools/prove.py` runs its tests.
_NESSIE = ["test_nessie.py", "test_nessie_kills.py"]
collect_ignore = [] if os.environ.get("PENSTOCK_PROOF") == "1" else _NESSIE


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The store and the catalog."""
    folder: Path = tmp_path_factory.mktemp("lake")
    with object_store(folder / "store") as store:
        store.create_bucket(BUCKET)
        with rest_catalog(folder / "rest", store, f"s3://{BUCKET}/rest") as rest:
            yield Lake(store, rest, folder)
