"""Measurements: Penstock and Apache Kafka side by side, scale, and where the time goes.

Results are for comparison: every figure names the command that measured it, and none of them is a
test of correctness.
"""
