"""How many runs the models make, and whether they are the same each time.

CI uses the same runs for the same code (with `PYTHONHASHSEED=0`: the order of sets counts), so that
it fails only for changes of the code. `PENSTOCK_MODEL_RANDOM=1` looks for new ones: each finding
becomes a test of its own.
"""

import os

EXAMPLES = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "50"))
IS_SEEDED = "PENSTOCK_MODEL_RANDOM" not in os.environ
