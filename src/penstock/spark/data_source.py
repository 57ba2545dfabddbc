"""`PenstockDataSource`: the name, the columns and the readers and writers that Spark sees.

The columns are those of Spark's Kafka source, in its order. Spark imports this file to find the
name, also for queries of other sources, so slow modules are imported on first use.
"""

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

COLUMNS: Final[tuple[tuple[str, DataType], ...]] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
HEADERS: Final = (
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)


class PenstockDataSource(DataSource):
    """Topics of Penstock and of Apache Kafka as DataFrames."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns. Spark calls this first, so wrong options are reported here."""
        from penstock.spark.source.options import Mode, read_source_options

        options = read_source_options(self.options, Mode.ANY)
        columns = [*COLUMNS, HEADERS] if options.include_headers else COLUMNS
        return StructType([StructField(name, kind) for name, kind in columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from penstock.spark.source.batch_reader import PenstockBatchReader

        self._require_columns(schema)
        return PenstockBatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream."""
        from penstock.spark.source.stream_reader import PenstockStreamReader

        self._require_columns(schema)
        return PenstockStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the writer of a batch."""
        from penstock.spark.sink.writer import make_batch_writer

        return make_batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Return the writer of a stream."""
        from penstock.spark.sink.writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite=overwrite)

    def _require_columns(self, schema: StructType) -> None:
        from penstock.spark.errors import OptionError

        expected = self.schema()
        found = [(field.name, field.dataType) for field in schema.fields]
        if found != [(field.name, field.dataType) for field in expected.fields]:
            raise OptionError(
                "schema",
                f"the columns of a topic are always {expected.simpleString()}.",
                "Leave schema(...) out and select or cast columns in the DataFrame.",
            )
