"""The storage of an Iceberg table's files: by `pyiceberg`, with the credentials of its catalog.

Guarantees: each process that writes a file has the credentials of that moment. A task of a pipeline
asks the REST catalog itself, so that handed-out keys are in no plan and in no file, and a task that
starts after they have expired has new ones. Other catalogs hand out none: the options of the
definition are enough, and the task does not open the catalog.

It always uses `pyiceberg`'s Arrow file systems, whatever `py-io-impl` the driver has: they are what
writes Parquet here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyarrow import fs
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from penstock.core.errors import PenstockError
from penstock.spark.tables.files.storages import StoreError
from penstock.spark.tables.formats.secrets import hidden, keep_hidden, resolved
from penstock.spark.tables.formats.store_problems import passing_reason

CATALOG_NAME: Final = "default"
"""The name of a catalog whose options have no `name`: pyiceberg's own default."""
REST: Final = "rest"
_TIMEOUTS: Final[Mapping[str, str]] = {
    "s3.connect-timeout": "5",
    "s3.request-timeout": "60",
    "s3.retry-strategy-impl": "pyarrow.fs.AwsStandardS3RetryStrategy",
}
"""In seconds, and three attempts: the pipeline waits itself. The options of the definition win."""
_REQUEST_SECONDS: Final = (5.0, 60.0)
"""To connect to a REST catalog, and to wait for its answer: pyiceberg would wait forever."""
_EXPIRY_NAMES: Final = ("token-expires-at",)
"""Part of the names of properties with the end of handed-out credentials, in milliseconds:
`s3.session-token-expires-at-ms`, `gcs.oauth2.token-expires-at`, `adls.sas-token-expires-at-ms…`."""
_RENEWED_BEFORE_MS: Final = 60_000
"""The credentials of a commit are renewed this long before they expire."""


def open_catalog(options: Mapping[str, str]) -> Catalog:
    """Open a catalog by pyiceberg's options. A database may store several catalogs, by name."""
    found = {**_TIMEOUTS, **resolved(options)}
    name = found.pop("name", CATALOG_NAME)
    catalog = load_catalog(name, **found)
    if isinstance(catalog, RestCatalog):
        session = catalog._session
        vars(session)["request"] = partial(session.request, timeout=_REQUEST_SECONDS)
    return catalog


def has_expired(properties: Mapping[str, str], now_ms: int) -> bool:
    """Return whether handed-out credentials among these properties expire within a minute."""
    ends = [
        int(value)
        for name, value in properties.items()
        if any(part in name for part in _EXPIRY_NAMES) and str(value).isdigit()
    ]
    return bool(ends) and min(ends) - _RENEWED_BEFORE_MS < now_ms


@dataclass(frozen=True, slots=True)
class IcebergStorage:
    """The storage of one table, by options with references."""

    catalog: tuple[tuple[str, str], ...]
    name: str

    def open(self, directory: str) -> tuple[fs.FileSystem, str]:
        """Return the file system with the credentials of now, and the directory's path in it."""
        properties = self._properties()
        scheme, host, path = PyArrowFileIO.parse_location(str(directory), properties)
        return PyArrowFileIO(properties).fs_by_scheme(scheme, host), path.rstrip("/")

    def hide(self, text: str) -> str:
        """Return a library's text without the secrets of this storage."""
        return hidden(text, dict(self.catalog))

    def _properties(self) -> dict[str, str]:
        options = dict(self.catalog)
        if options.get("type") != REST:
            return {**_TIMEOUTS, **resolved(options)}
        try:
            catalog = open_catalog(options)
            try:
                found = dict(catalog.load_table(self.name).io.properties)
            finally:
                catalog.close()
        except PenstockError:
            raise
        except Exception as error:
            reason = passing_reason(error)
            if reason is None:
                raise
            raise StoreError(
                f"the catalog did not answer for {self.name}: {self.hide(reason)}"
            ) from None
        keep_hidden(found)
        return found
