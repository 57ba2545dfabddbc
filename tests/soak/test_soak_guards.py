"""Each safeguard taken out of the broker makes a soak say so (marker `chaos`).

A short soak on a broker that `unguarded` has changed: the verdict must have the sentence that the
guard prevents. CI removes one of them; PENSTOCK_PROOF=1 removes each in turn. `test_soak` is the
same with all of them.
"""

from typing import Final

import pytest

from tests.crash.rounds import IS_PROOF
from tests.soak.run import FORGETFUL, soak
from tests.soak.test_soak import BOUNDS
from tests.soak.verdict import broken

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

SECONDS: Final = 35.0
SECONDS_WITH_RELOAD: Final = 66.0
TOLD: Final = {
    "uncounted-refusals": "the broker counted 0",
    "slow-readers-stay": "unread_answers: not ended in time",
    "unlimited-requests": "no connection had to wait for the budget of unfinished requests",
    "no-disk-mark": "the disk was to refuse twice: [0, 0]",
    "no-reload": "1 changes of the settings, 0 reloads",
    FORGETFUL: "groups were not shown everything",
}
"""What the verdict says without each guard."""
CHOSEN: Final = tuple(TOLD) if IS_PROOF else ("no-disk-mark",)


@pytest.mark.parametrize("guard", CHOSEN)
def test_without_the_guard_the_verdict_says_so(guard: str) -> None:
    seconds = SECONDS_WITH_RELOAD if guard == "no-reload" else SECONDS
    problems = broken(soak(seconds / 60, unloaded_seconds=5.0, without=guard), BOUNDS)
    told = [problem for problem in problems if TOLD[guard] in problem]
    assert told, problems
    print(f"guard {guard} (soak): {told[0]}")
