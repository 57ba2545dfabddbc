"""JSON values to Arrow columns: by a compiled kernel, by DuckDB, or row by row."""
