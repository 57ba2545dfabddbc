"""The source `format("penstock")`: batch and stream readers, planning, and their tasks."""
