"""Refreshes over HTTP."""
