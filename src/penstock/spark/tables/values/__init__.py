"""Converts the bytes of values to columns: one parser for each format, with one port (`parser`).

A parser never fails a batch because of a record: an unreadable value is returned as a reject with
its reason, and all others as columns.
"""
