"""The port of a table, and how a definition opens one. `delta`, `iceberg` implement it."""
