"""`lower_priority`: let the event loop preempt a thread that computes.

When the event loop wakes up on a processor on which a thread of the same priority computes, Linux
lets the thread finish its time slice, which is a few milliseconds. The loop preempts a thread with
a nice value that is higher by 5. The difference is small on purpose: a thread that holds the
interpreter lock delays the loop, and for longer the less processor time it gets.

Threads for searches by time, checks of large batches, compaction and deletes call it. It does NOT
change anything on other systems than Linux: a priority belongs to the whole process there.
"""

import contextlib
import os
import sys
import threading
from typing import Final

NICER_BY: Final = 5
NICE_MAX: Final = 19


def lower_priority() -> None:
    """Lower the priority of the calling thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # A sandbox may forbid it; the work is the same.
        with contextlib.suppress(OSError):
            nice = os.getpriority(os.PRIO_PROCESS, thread) + NICER_BY
            os.setpriority(os.PRIO_PROCESS, thread, min(nice, NICE_MAX))
