"""The port of a table, and opening a table from a definition. `delta`, `iceberg` implement it."""
