"""Expectations: rules for rows, in SQL, and their evaluation in a task or in Spark."""
