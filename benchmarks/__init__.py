"""Measurements: Penstock and Apache Kafka side by side, scale, and where the time goes.

Results are compared, not admired: every figure names the command that made it, and none of them is
a test of correctness.
"""
