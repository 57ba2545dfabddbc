"""The bounds of leases of sealed segments, each with its unit and its reason.

They belong to the table of `core.limits`, which is full. All of them are fixed.
"""

from typing import Final

LEASES_MAX: Final = 100
"""Leases of a broker. Each keeps the disk space of deleted segments until it ends."""

LEASES_OF_PRINCIPAL_MAX: Final = 20
"""Leases of one principal, so that one job does not take those of the others."""

LEASE_CLOCK_STEP_MS_MAX: Final = 300_000
"""Five minutes: a step of the clock backwards, before a restart, that does not end leases."""

LEASE_SECONDS_MAX: Final = 86_400
"""A day: the time for which a job that ended without a release keeps disk space."""

LEASE_PARTITIONS_MAX: Final = 1_000
"""Partitions of one lease: an answer of about 200 KB without segments."""

LEASE_SEGMENTS_MAX: Final = 10_000
"""Segments of one lease: 10 TB of the default size, half a second of links on a thread, and an
answer of about a megabyte."""

LEASE_ABORTED_MAX: Final = 10_000
"""Aborted transactions of one lease whose markers are behind its last segments: at most one for
each producer. The other ones are in the linked indexes."""

LEASE_EPOCHS_MAX: Final = 10_000
"""Leader epochs of one lease: about 400 KB of an answer."""

LEASE_SWAP_SECONDS_MAX: Final = 5.0
"""Time to wait for the end of a segment exchange by compaction, which takes milliseconds."""
