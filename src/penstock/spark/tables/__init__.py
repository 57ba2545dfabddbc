"""Topic to table: each record of a topic once in an Iceberg or Delta table, written by Spark.

The table is the only truth about its content: every commit records the offsets that it adds, in the
same snapshot or transaction. `commit` decides from that, without IO, what to do with a micro-batch;
`port` is the interface of a table; `delta` and `iceberg` implement it.

`definition` is a pipeline as a TOML file defines it. `ddl`, `json_schema` and `columns` define the
columns of a table, `schema_changes` how they may change. `values` turns the bytes of records into
columns; `rejects` are records that it cannot parse, and `expectations` are rules for the rows.
`planner` chooses the execution mode in Spark and `run` runs a pipeline; `looking` inspects one
without running it.
"""
