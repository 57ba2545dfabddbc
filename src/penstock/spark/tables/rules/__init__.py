"""Expectations: rules for rows, in SQL, and where Spark evaluates them."""
