"""How long a test waits unless it says. Apart, so that a broker starts without a client."""

from typing import Final

ARRIVAL_SECONDS_MAX: Final = 10.0
"""How long records are waited for."""
