"""Topic to table: Spark writes each record of a topic once to an Iceberg or Delta table.

The table is the only truth about its content: every commit records the offsets that it adds, in the
same snapshot or transaction. From these offsets `commit` decides, without IO, whether to commit,
skip or trim a micro-batch; `formats` has the interface of a table, and `formats.delta` and
`formats.iceberg` implement it.

`definition` is a pipeline as a TOML file defines it. `values` turns the bytes of records into
columns, and `rules` are expectations for the rows. `files` are the Parquet files of a table, and
`tasks` write them in Spark. `run` is the driver: it runs a pipeline and maintains its tables.
`inspection` reports about a pipeline without running it.
"""
