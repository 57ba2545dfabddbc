"""For all tests: what a slow machine makes asyncio say is not what a test looks for.

In development mode asyncio warns about callbacks that took over 100 ms. On a loaded machine that
is any of them, and tests that look at what was logged would find it.
"""

import logging

logging.getLogger("asyncio").setLevel(logging.ERROR)
