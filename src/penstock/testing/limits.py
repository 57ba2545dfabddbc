"""Default waiting time of tests. A module of its own, so that a broker starts without a client."""

from typing import Final

ARRIVAL_SECONDS_MAX: Final = 10.0
"""Maximum wait for records, in seconds."""
