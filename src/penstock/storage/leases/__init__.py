"""Leases of sealed segments: files that stay while a job reads them without the broker."""
