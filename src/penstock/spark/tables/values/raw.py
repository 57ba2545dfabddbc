"""Raw values: the unchanged bytes, in one column. They are never rejected."""

from typing import Final

import pyarrow as pa

from penstock.spark.tables.values.columns import RAW_COLUMN
from penstock.spark.tables.values.parser import Parsed

SCHEMA: Final = pa.schema([pa.field(RAW_COLUMN, pa.binary())])


class RawValues:
    """Returns its input."""

    @property
    def schema(self) -> pa.Schema:
        """One column of bytes."""
        return SCHEMA

    def parse(self, values: pa.Array) -> Parsed:
        """Return the same bytes, not copied."""
        return Parsed(pa.RecordBatch.from_arrays([values], schema=SCHEMA), None)
