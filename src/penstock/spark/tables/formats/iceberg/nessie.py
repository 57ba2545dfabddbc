"""Project Nessie as the catalog of an Iceberg table: where it differs from other REST catalogs.

Guarantees: every commit to a table in Nessie is conditional. Nessie keeps the current snapshot
only. Notes of pipelines do not need more: each commit copies them into the table's properties.

Nessie 0.99 also accepts any commit with the condition "there is no snapshot yet" (its issue 10062,
corrected since). So the process that creates a table commits an empty snapshot before any other
process may write: a table without a snapshot is refused. The creation itself is atomic.

| after a crash or beside others | what happens |
| --- | --- |
| between the creation and the first snapshot | the table is refused; it is empty: drop it |
| two processes create the table | one gets it; the other is refused until it has a snapshot |
| another program writes at the same moment | its rows can be lost: Penstock must be first |

It is NOT a client of Nessie's own API: branches are chosen by the `uri` of the catalog.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitStateUnknownException, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import AddSchemaUpdate, TableUpdate

from penstock.spark.tables.formats.port import SchemaRefusedError, TableRefusedError

IS_NESSIE: Final = "nessie.is-nessie-catalog"
"""A property that Nessie's configuration gives to each client."""
_BAD_REQUEST: Final = "HTTP 400 Bad Request"


def is_nessie(catalog: Catalog) -> bool:
    """Return whether Nessie is the server of this catalog."""
    return str(catalog.properties.get(IS_NESSIE, "")).lower() == "true"


def create_table(
    catalog: Catalog,
    name: str,
    columns: Schema,
    *,
    spec: PartitionSpec,
    order: SortOrder,
    properties: Mapping[str, str],
) -> None:
    """Create the table if it is missing; in Nessie with an empty snapshot."""
    create = catalog.create_table if is_nessie(catalog) else catalog.create_table_if_not_exists
    try:
        table = create(
            name, columns, partition_spec=spec, sort_order=order, properties=dict(properties)
        )
    except TableAlreadyExistsError:
        return
    if not is_nessie(catalog):
        return
    first = table.transaction()
    first.update_snapshot().fast_append().commit()
    first.commit_transaction()


def require_snapshot(catalog: Catalog, table: Table) -> None:
    """Raise `TableRefusedError` if the next commit to this table would not be conditional."""
    if table.metadata.current_snapshot_id is None and is_nessie(catalog):
        raise TableRefusedError(
            f"the Iceberg table {'.'.join(table.name())} has no snapshot, and Nessie does not "
            "protect the first commit of a table from another writer. If another pipeline creates "
            "the table now, start again. Otherwise drop the empty table, so that the pipeline "
            "creates it, or insert a row."
        )


def refused_columns(
    catalog: Catalog, table: Table, updates: Iterable[TableUpdate], error: Exception
) -> SchemaRefusedError | None:
    """Return the reason why Nessie refused a commit with new columns; None for other errors."""
    has_columns = any(isinstance(one, AddSchemaUpdate) for one in updates)
    is_refused = isinstance(error, CommitStateUnknownException) and _BAD_REQUEST in str(error)
    if not (has_columns and is_refused and is_nessie(catalog)):
        return None
    return SchemaRefusedError(
        f"Nessie refused to change the columns of table {'.'.join(table.name())}: old "
        "versions require a deprecated field (its issue 11341). Upgrade Nessie, or change the "
        "columns in Spark with `ALTER TABLE`, and start the pipeline again."
    )
