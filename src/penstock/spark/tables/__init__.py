"""Topic to table: each record of a topic once in an Iceberg or Delta table, written by Spark.

The table is the only truth about what it holds: every commit records the offsets that it brings,
in the same snapshot or transaction. `commit` decides from that, without IO, what to do with a
micro-batch; `port` is what it needs of a table; `delta` and `iceberg` are the two kinds of table.

`definition` is what a pipeline is, as a TOML file gives it. `ddl`, `json_schema` and `columns` say
which columns a table has, `schema_changes` what may become of them. `values` turns the bytes of
records into columns; `rejects` is what could not be turned, and `expectations` what was turned and
is not right. `planner` chooses the way through Spark and `run` carries a pipeline out; `looking` is
for people who want to know without running anything.
"""
