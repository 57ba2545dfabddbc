"""Committed offsets: requests, and the deletion of expired ones."""
