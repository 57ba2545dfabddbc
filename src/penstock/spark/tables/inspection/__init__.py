"""Inspection of a pipeline, without running it: `check`, `status`, bad records.

Results are plain values, which the command line and other programs format. This package changes no
topic, table or checkpoint.
"""
