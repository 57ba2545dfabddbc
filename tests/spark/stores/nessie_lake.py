"""A lake with Project Nessie as its catalog: it hands out no keys, and keeps one snapshot."""

from dataclasses import dataclass
from pathlib import Path

from tests.oracle.object_store import REGION
from tests.spark.stores.lake import Lake


@dataclass(frozen=True)
class NessieLake(Lake):
    """A store and Nessie, which run."""

    def catalog(
        self, kind: str, folder: Path, *, uri: str = "", key: str = "", secret: str = ""
    ) -> dict[str, str]:
        """Return the options of `table.catalog`; each kind is the same."""
        return {
            "type": "rest",
            "uri": uri or self.rest.address,
            "s3.endpoint": self.store.address,
            "s3.region": REGION,
            "s3.access-key-id": key or f"${{file:{self.folder}/access-key}}",
            "s3.secret-access-key": secret or f"${{file:{self.folder}/secret-key}}",
        }
