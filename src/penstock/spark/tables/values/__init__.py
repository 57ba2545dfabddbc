"""The bytes of values to columns: one parser for each format behind one small port (`parser`).

A parser never fails a batch because of a record: what it cannot read comes back as a reject with
its reason, and everything else as columns.
"""
