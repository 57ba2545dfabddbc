"""The work of a pipeline's tasks in Spark: read a range, judge each record, write files, report."""
