"""Topic to table: what a pipeline is, how values become columns, and what happens to bad records.

`definition` is the value that a TOML file (`definition_file`) and the decorators of
`penstock.spark.pipelines` both give. `ddl`, `json_schema` and `columns` say which columns a table
has, `schema_changes` what may become of them. `values` turns the bytes of records into columns;
`rejects` is what could not be turned, and `expectations` what was turned and is not right.

It is not the committer: nothing in these files writes to a table.
"""
