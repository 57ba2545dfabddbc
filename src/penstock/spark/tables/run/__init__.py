"""Runs a pipeline: from a definition to a Spark query whose batches are committed once each.

The packages around it decide; this package carries out their decisions.
"""
