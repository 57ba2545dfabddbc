"""The limits of connections between brokers, with their reasons (data)."""

from typing import Final

from penstock.core.settings.cluster_settings import BROKERS_MAX

CALL_SLOTS: Final = 4
"""Connections to one broker for markers, and as many for questions. Each carries one request at a
time: a marker that waits for a slow replica, or a question that a coordinator keeps for a moment,
holds up the items of its own request only."""

SHARE_LANES: Final = 7
"""Connections to one broker for share groups: one for each type of request for share state, one for
the ends of logs, and one for dead letters."""

CONNECTIONS_MAX: Final = 2 * BROKERS_MAX * (1 + 2 * CALL_SLOTS + SHARE_LANES)
"""Each other broker has one connection for fetches, `CALL_SLOTS` for markers and for questions, and
`SHARE_LANES`. Twice as many, because the connections of a stopped broker are closed later."""

REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Requests of brokers in flight. A full fetch of 4,000 partitions has 150 KB."""

REQUESTS_MAX: Final = 2_000
"""Requests of brokers in flight: `CALL_SLOTS` of each kind from each broker, and the fetches."""

SESSIONS_MAX: Final = 4 * BROKERS_MAX
"""Fetch sessions of followers. A broker that connects again leaves one behind."""

SESSION_PARTITIONS_MAX: Final = 500_000
"""Partitions in all sessions of followers, about 200 bytes each: two replicas of 100,000
partitions, and room for the sessions of broken connections."""

TIMEOUT_SECONDS: Final = 30.0
"""Longest wait for the answer of a broker. A follower's fetch is parked for half a second."""

SILENCE_SECONDS_MAX: Final = 4
"""A machine that confirms no byte and no probe for this long is cut off or without power. Shorter
cuts are left to TCP. Without this limit TCP sends again later and later: a follower that was cut
off for 13 seconds sent its next fetch 13 seconds after the cut was healed."""

REFUSED_WITHIN_SECONDS: Final = 0.3
"""Two refused connections within this time are reported: the process of that broker is gone."""

CALLS_MAX: Final = 16
"""Calls of one lane to one broker in flight; above, a call fails at once."""

MARKERS_MAX: Final = 500
"""Ends of transactions in one request: about 100 bytes each and 20 microseconds."""

QUESTIONS_MAX: Final = 50
"""Questions in one request: a coordinator answers this number in one turn of its event loop."""

SHARE_STATES_MAX: Final = 500
"""Requests for share state in one message: about 50 bytes each and 20 microseconds."""

SHARE_GROUPS_MAX: Final = 8
"""Messages for share state of different groups in flight to one broker, of one type."""

WAITING_MAX: Final = 100_000
"""Ends, or questions, that wait for one broker; above, they fail at once and are tried again."""
