"""`format("penstock-forgetful")`: the sink with one guard taken out, to show that it is needed.

Everything is as in the product, transactions too, but every read of the log of decisions returns
nothing. Importing this file changes nothing; creating or unpickling a writer of this format changes
its process, which must not be used for anything else.
"""

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from penstock.spark.data_source import PenstockDataSource
from penstock.spark.sink import transactions as sink_transactions
from penstock.spark.sink.decision_log import DecisionLog
from penstock.spark.sink.steps import Ledger
from penstock.spark.sink.writer import PenstockStreamWriter, make_stream_writer


class ForgetfulLog(DecisionLog):
    """Writes decisions, and reads none."""

    def read(self) -> Ledger:
        """As if nothing had ever been decided."""
        return Ledger()


class ForgetfulWriter(PenstockStreamWriter):
    """The real writer, wherever it is, with a log that forgets."""

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        vars(sink_transactions)["DecisionLog"] = ForgetfulLog


class ForgetfulDataSource(PenstockDataSource):
    """The real source and sink under another name."""

    @classmethod
    def name(cls) -> str:
        return "penstock-forgetful"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        vars(sink_transactions)["DecisionLog"] = ForgetfulLog
        made = make_stream_writer(self.options, schema, overwrite=overwrite)
        writer = ForgetfulWriter.__new__(ForgetfulWriter)
        writer.__dict__.update(vars(made))
        return writer
