"""Topic to table: each record of a topic once in an Iceberg or Delta table, written by Spark.

The table is the only truth about its content: every commit records the offsets that it adds, in the
same snapshot or transaction. `commit` decides from that, without IO, what to do with a micro-batch;
`formats` has the interface of a table, and `formats.delta` and `formats.iceberg` implement it.

`definition` is a pipeline as a TOML file defines it. `values` turns the bytes of records into
columns, and `rules` are expectations for the rows. `files` are the Parquet files of a table, and
`tasks` write them in Spark. `run` is the driver: it runs a pipeline and maintains its tables.
`inspection` reports about a pipeline without running it.
"""
