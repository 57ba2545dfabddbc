"""Limits and times of the etcd store, each with its reason (pure)."""

from typing import Final

REQUEST_BYTES_MAX: Final = 1_500_000
"""One request: etcd's `--max-request-bytes` is 1.5 MiB by default, with its own envelope in it."""

ANSWER_BYTES_MAX: Final = 268_435_456
"""One answer. A page that is larger is asked for again with half the keys; a watch that has more
waiting loads everything again. gRPC's own limit of 4 MiB is below a page of large values."""

PAGE_KEYS_MAX: Final = 2_000
"""Keys in one answer of a load: about 500 KB of partition states, a few milliseconds of decoding,
so that a load of 100,000 keys does not hold the event loop."""

ENDPOINTS_MAX: Final = 16
"""Addresses of members. etcd's advice is at most seven members."""

ATTEMPT_SECONDS: Final = 0.7
"""One attempt of a call, and one attempt to connect. etcd elects a leader in 0.8 to 2 s; three
members are tried in that time."""

TOTAL_SECONDS: Final = 5.0
"""All attempts of a call: more than twice the longest gap of writes after the loss of a leader."""

KEEP_ALIVE_ATTEMPT_SECONDS: Final = 1.0
KEEP_ALIVE_TOTAL_SECONDS: Final = 3.0
"""All attempts of a keep-alive: one for each of three members, and a third of a session of 9 s."""

SESSION_SECONDS_MIN: Final = 3.0
"""etcd grants no less than 2 s by default, and a session outlives one slow keep-alive."""

SESSION_SECONDS_MAX: Final = 3_600.0

PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 0.5
"""Between two rounds of all members; the first pause, and the longest after doubling."""

AUTHENTICATIONS_MAX: Final = 3
"""Tokens for one call. A fourth would be rejected for the same reason."""

WATCH_IDLE_SECONDS: Final = 2.0
"""A watch without a message asks for one after this time."""

WATCH_SILENCE_SECONDS: Final = 5.0
"""A watch without any message for this time is opened at another member. A member answers the
question of an idle watch in milliseconds."""

WATCH_OPEN_SECONDS: Final = 1.0
"""Time for the first message of a watch."""
