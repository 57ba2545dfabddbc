"""Every bound in one table, with its unit and the reason for its value.

Bounds that a user may set are defaults here and settings in `settings.config`; the rest are fixed.
A bound is checked before memory is allocated for the bounded thing.
"""

from typing import Final

# --- Frames ---

FRAME_BYTES_MAX: Final = 104_857_600
"""Largest request in bytes: Kafka's socket.request.max.bytes, 100 MiB."""

CONTROL_FRAME_BYTES_MAX: Final = 2_097_152
"""Largest request in bytes for every API but Produce. A Python object for each array element costs
about 60 bytes, so 2 MiB of one-byte elements stays near 120 MB; known clients stay far below it."""

ELEMENTS_PER_REQUEST_MAX: Final = 200_000
"""Array elements in one request, counted before decoding: ten times the partitions of a broker."""

ELEMENTS_ON_LOOP_MAX: Final = 4_000
"""Array elements that the event loop decodes or encodes: 15 ms. A worker thread handles more."""

WIDE_REQUESTS_MAX: Final = 4
"""Requests with more elements that are handled at once: 100 MB each. Others wait as bytes."""

TAGGED_FIELDS_MAX: Final = 64
"""Tagged fields in one structure. Kafka's schemas have at most five."""

CLIENT_ID_BYTES_MAX: Final = 32_767
"""A client id is a legacy string: its length is an int16."""

RESPONSE_FRAME_BYTES_MAX: Final = 2_147_483_647
"""Largest response that Penstock's client accepts; the caller's own byte limit is lower."""

# --- Records ---

BATCH_BYTES_MAX_DEFAULT: Final = 1_048_588
"""Kafka's max.message.bytes: 1 MiB of records and the 12 bytes of log overhead."""

DECOMPRESSED_BATCH_BYTES_MAX: Final = 134_217_728
"""128 MiB: the largest decompressed batch. zstd compresses 256 MiB of zeros into 8 KiB, so the
stored size is no measure; Kafka's proposed max.decompressed.message.bytes has the same purpose."""

DECOMPRESSED_REQUEST_BYTES_MAX: Final = DECOMPRESSED_BATCH_BYTES_MAX
"""Decompressed size of all batches of one Produce request together: it may have a thousand."""

RECORDS_PER_BATCH_MAX: Final = 1_000_000
"""Records in one batch, read from its header before decompression: the highest value of
librdkafka's batch.num.messages; Java's producer stays far below. Without a bound, 1 MiB of zstd can
hold 19 million records of 7 bytes. A record costs 15 ns to check and 6 µs uncompiled, and 150 bytes
while compaction reads it."""

UNFOLD_ON_LOOP_BYTES_MAX: Final = 262_144
"""Decompressed size of a batch on the event loop: one millisecond with the slowest codec. A worker
thread checks a larger batch."""

SCAN_ON_LOOP_BYTES_MAX: Final = 2_097_152
"""Uncompressed records that are checked on the event loop. The smallest have 7 bytes, and 300,000
of them need 5 ms."""

SCAN_ON_LOOP_BYTES_MAX_UNCOMPILED: Final = 32_768
"""As above, without the compiled walker: up to 30 ms for the smallest records."""

INTERPRETER_SWITCH_SECONDS: Final = 0.0001
"""Time that a thread keeps the interpreter while the event loop waits for it, several times a
request. Beside threads that decode wide requests the p99 of a neighbour was 22 ms with 0.5 ms, and
8 to 18 ms with this. Python's own value is 5 ms."""

RECOMPRESS_ON_LOOP_BYTES_MAX: Final = 65_536
"""Uncompressed records that are compressed on the event loop for the topic's compression.type: 3 ms
with gzip."""

BLAMED_ON_LOOP_RECORDS_MAX: Final = 500
"""Records of a rejected batch that are decoded on the event loop to name each bad one: 5 ms."""

BATCH_THREADS: Final = 2
"""Threads that check large batches. Each may hold one decompressed batch."""

BATCHES_QUEUED_MAX: Final = 1_000
"""Large batches that wait for such a thread. A connection has one at most; above it a produce is
rejected with an error that producers retry."""

BATCHES_QUEUED_BYTES_MAX: Final = 67_108_864
"""As above, in bytes of their requests, 64 MiB: a quarter of the bound on requests, so that waiting
large batches do not stop the reading of other requests."""

# --- Connections ---

CONNECTIONS_MAX_DEFAULT: Final = 12_000
"""Connections on one broker: the required 10,000, and a reserve for operators. Descriptors are
limited to 20,000 in common containers, and segments need some."""

REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX: Final = 64
"""Requests of one connection that are being handled. Clients use 5 to 64; reading pauses above."""

REQUEST_BYTES_IN_FLIGHT_MAX_DEFAULT: Final = 268_435_456
"""256 MiB for requests being received or handled, over all connections. Reading pauses above."""

REQUESTS_IN_FLIGHT_MAX_DEFAULT: Final = 100_000
"""Requests being handled over all connections: ten for each of 10,000. One costs a kilobyte or two
in objects even if it has few bytes, so bytes alone do not bound memory. Reading pauses above."""

SMALL_REQUEST_BYTES: Final = 65_536
"""A request up to this size is received to its end even if the half for unfinished requests is used
up: large unfinished requests delay only each other. 12,000 of this size are 768 MiB."""

WRITE_BUFFER_BYTES_HIGH: Final = 1_048_576
"""Size of finished answers that wait for earlier answers of their connection. Above it, no further
request of the connection is handled."""

SOCKET_BUFFER_BYTES_HIGH: Final = 65_536
"""Bytes of answers that the socket does not accept, above which a client counts as slow: none of
its further requests is handled, and its bytes count. 12,000 clients just below it hold 768 MiB."""

UNSENT_ANSWER_BYTES_MAX: Final = 268_435_456
"""256 MiB for answers that clients read slowly, over all connections. Above it a fetch gets one
batch: otherwise a thousand clients that request 55 MiB and read nothing would hold 55 GB."""

SENDFILE_BYTES_MIN: Final = 131_072
"""Answers of at least this size are sent by `sendfile`: the size of reads that map the page cache.
For less, the system calls around it cost as much as the copy."""

SEND_CHUNK_BYTES: Final = 1_048_576
"""Bytes of a file that are checked to be in memory, or loaded from the disk, in one call."""

SEND_TURN_BYTES_MAX: Final = 9_437_184
"""Bytes that one connection sends by `sendfile` before others get a turn: 1 to 2 ms. An answer of 8
MiB with its head fits, so a fast reader needs no second turn."""

FRAME_COMPLETION_SECONDS_MAX: Final = 30.0
"""A started request must be complete within this time (slowloris)."""

SLOW_READER_SECONDS_MAX: Final = 30.0
"""A peer that reads nothing of a waiting answer for this long is disconnected."""

CONNECTION_IDLE_SECONDS_MAX: Final = 600.0
"""Kafka's connections.max.idle.ms."""

ERROR_MESSAGE_CHARACTERS_MAX: Final = 1_000
"""Length of an error message in an answer. Messages repeat names that the client sent, a string on
the wire has at most 32,767 bytes, and a character at most four."""

# --- Turns of the event loop ---

TURN_SECONDS: Final = 0.01
"""Work on requests in one turn of the event loop, over all connections. It is more than 128 clients
with a small request each need, so that their records share one sync. It is a fifth of the longest
pause that a client may cause, because one request may exceed it."""

CONNECTION_TURN_SECONDS: Final = 0.001
"""Work on the requests of one connection in one turn, while others may wait: about fifty small
requests."""

QUEUED_TURN_SECONDS: Final = 0.001
"""Work in one turn that earlier turns deferred. A new request waits only for this time and not for
the whole queue."""

# --- Parked requests ---

PARKED_REQUESTS_MAX: Final = 100_000
"""Requests waiting for data, a commit or a deadline, over all connections."""

PARKED_PARTITIONS_MAX: Final = 500_000
"""Partitions in waiting fetches, over all connections: fifty for each of 10,000 clients. One costs
about 300 bytes, and without a bound a single client could name 200,000 in every fetch."""

PRODUCE_WAIT_MS_MAX: Final = 300_000
"""Longest wait of one Produce for its commit; clients use 30 s, and 2^31 ms would be 24 days."""

PRODUCE_UNSYNCED_PARTITIONS_MAX: Final = 128
"""Partitions of one Produce that wait for the disk at once; the request continues after that."""

FETCH_WAIT_MS_MAX: Final = 300_000
"""Longest wait of one Fetch; clients use 500 ms, and 2^31 ms would be 24 days."""

FETCH_BYTES_MAX: Final = 57_671_680
"""Kafka's fetch.max.bytes on the broker: 55 MiB in one response."""

FETCH_PARTITIONS_AT_ONCE_MAX: Final = 1_000
"""Partitions that a fetch reads at once, 15 ms uncompiled; a fetch of more is read in slices."""

FETCH_SESSIONS_MAX: Final = 1_000
"""Kafka's max.incremental.fetch.session.cache.slots."""

FETCH_SESSION_PARTITIONS_MAX: Final = 100_000
"""Partitions in all sessions together; each costs about 200 bytes."""

# --- Topics ---

TOPIC_NAME_CHARACTERS_MAX: Final = 249
"""Kafka's limit: the name becomes a directory name with a partition number behind it."""

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""Partitions that one request may set for a topic."""

PARTITIONS_PER_BROKER_MAX: Final = 20_000
"""Partitions on one broker: five times the required number."""

TOPICS_PER_REQUEST_MAX: Final = 10_000
"""Topics created or deleted by one request."""

# --- Producers ---

PRODUCER_BATCHES_REMEMBERED: Final = 5
"""Batches remembered for each idempotent producer: clients keep at most five in flight."""

PRODUCER_ID_BLOCK_SIZE: Final = 1_000
"""Producer ids allocated from the store at a time, as in Kafka."""

PRODUCER_IDS_PER_PARTITION_MAX: Final = 100_000
"""Producers remembered in one partition; the idle producers whose last batch is lowest in the log
are evicted first, so that every replica of a partition evicts the same ones."""

PRODUCERS_DESCRIBED_MAX: Final = 2 * PRODUCER_IDS_PER_PARTITION_MAX
"""Producers in one answer of DescribeProducers. One partition always fits."""

# --- Coordinators ---

SKIPPED_RECORD_LINES_PER_MINUTE_MAX: Final = 20
"""Log lines a minute about skipped records of internal topics: enough to find them, few enough for
a partition full of them."""

COORDINATOR_BATCH_BYTES_MAX: Final = 16_777_216
"""Largest change of one group or transaction: a group of 10,000 members with 1.5 KB each.
Kafka stops at max.message.bytes of the internal topic, 1 MiB, and such a group fails."""

GROUP_METADATA_BYTES_MAX: Final = 2 * COORDINATOR_BATCH_BYTES_MAX
"""Metadata of the members of a classic group, all their protocols together: they have two or three,
and one of them is written. More cannot be written and would only fill the memory."""

GROUPS_METADATA_BYTES_MAX: Final = 268_435_456
"""Metadata of members of all classic groups of a broker and of their records, 256 MiB: a few
groups of the largest size, or half a million members of the usual one. Without it a client could
fill the memory with groups."""

SMALL_MEMBER_BYTES_MAX: Final = 4_096
"""A member of a classic group with at most this metadata can join even if the bound over all groups
is reached: members with large metadata and long sessions must not exclude the others."""

COORDINATOR_LOAD_BYTES: Final = 65_536
"""Bytes of an internal topic that are read before other work gets a turn: about 5 ms of work."""

COORDINATOR_LOAD_RECORDS: Final = 1_000
"""As above, in records: a batch may hold a million. A batch that is compressed or exceeds one of
these two bounds is decompressed on a thread and replayed in portions."""

COORDINATOR_PORTION_RECORDS_MAX: Final = 2_000
"""Expired records that a coordinator deletes in one event: about 10 ms of work."""

COORDINATOR_PORTION_BYTES_MAX: Final = 1_000_000
"""As above, in bytes. A batch below max.message.bytes of the internal topics, 1 MiB, so that Apache
Kafka could have written it; a name in a record may have 32,767 bytes."""

OFFSETS_PER_COMMIT_MAX: Final = 10_000
"""Partitions of one offset commit, one event of a group's shard: about 30 ms uncompiled. Apache
Kafka rejects records that do not fit into 1 MiB, about 14,000 partitions, with the same error."""

GROUPS_WITH_SETTINGS_MAX: Final = 10_000
"""Groups with their own settings. They need not exist and are in the memory of brokers."""

GROUP_WITH_SETTINGS_NAME_BYTES_MAX: Final = 1_024
"""Name of a group with its own settings. It becomes a key of the store; a group without settings
may have a name of 32,767 bytes, and ten thousand of those would be 300 MB."""

# --- Quotas ---

QUOTA_ENTITIES_MAX: Final = 10_000
"""Users, client ids and addresses with quotas. They need not exist and are in brokers' memory."""

QUOTA_ENTITY_NAME_BYTES_MAX: Final = 1_024
"""Name of a user or client id with its own quotas: it becomes a key of the store."""

QUOTA_STATES_MAX: Final = 20_000
"""Clients whose use of one kind of quota is remembered: twice the required connections. Each needs
about 2.3 KB, and with the longest name that may have a quota 6.5 KB; a longer client id is
remembered by its digest. The client with the longest inactivity is evicted first."""

QUOTA_STATE_IDLE_SECONDS_MAX: Final = 3_600.0
"""A client that was inactive for this long is evicted, as in Kafka."""

THROTTLE_MS_MAX: Final = 2_147_483_647
"""The throttle time of an answer is an int32."""

# --- Metadata store ---

STORE_COMPARES_MAX: Final = 128
"""Compares in one transaction: etcd rejects the 129th."""

STORE_OPERATIONS_MAX: Final = 128
"""Operations in one transaction: etcd rejects the 129th."""

STORE_VALUE_BYTES_MAX: Final = 1_048_576
"""One value: etcd accepts 1.5 MiB in one request, so a value and its transaction fit."""

STORE_HISTORY_REVISIONS: Final = 10_000
"""Revisions that Penstock's store keeps for slow watches; each costs about 300 bytes."""

STORE_WATCH_BATCHES_MAX: Final = 10_000
"""Batches that wait for one slow watcher; above it the watcher must load the state again."""

METADATA_ATTEMPTS_MAX: Final = 16
"""Decisions of one request whose compares failed. Each failure means that another writer was first:
this many in a row are a bug or an overload, which is reported."""

BROKER_SESSION_SECONDS: Final = 9.0
"""Time after which an inactive broker counts as dead: Kafka's broker.session.timeout.ms."""

KEEP_ALIVES_PER_SESSION: Final = 4.5
"""Keep-alives within the time of a session: three of them may be lost."""

# --- Storage ---

FILES_OPEN_MAX: Final = 4_096
"""Segment and index files kept open: with 12,000 connections still under 20,000 descriptors."""

DESCRIPTORS_RESERVED: Final = 256
"""Descriptors for all but connections and segments: metadata, checkpoints, listeners, flushes."""

SEGMENT_RELATIVE_OFFSET_MAX: Final = 2_147_483_647
"""Offsets in an index are 32 bits relative to the segment's base."""

INDEX_PENDING_BYTES_MAX: Final = 768
"""Index entries held in memory before they are written: 96 offsets or 64 times, which cover at
least 256 KiB of data at the usual interval of 4 KiB."""

READ_POSITIONS_REMEMBERED: Final = 16
"""Positions where earlier reads of a log ended. A consumer continues at its last position, so up to
this many consumers need no index."""

RECOVERY_CHUNK_BYTES: Final = 1_048_576
"""Bytes of a segment that a scan reads at a time; a larger batch is read whole."""

STORED_BATCH_BYTES_MAX: Final = 1_073_741_824
"""Largest batch that a scan accepts; a larger length is damage and is not allocated."""

PRODUCER_SNAPSHOT_INTERVAL_BYTES: Final = 1_048_576
"""Data appended between two producer snapshots of the periodic checkpoint: a start after a crash
replays them in addition to the data past the recovery point."""

SNAPSHOT_SLICE_PRODUCERS: Final = 500
"""Producers packed at once for a snapshot, on its own thread: about a millisecond in which it holds
the interpreter. A partition may have 200 times as many."""

PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Kafka's producer.id.expiration.ms: a producer without activity at this broker for a day expires.
"""

SYNC_ON_LOOP_SECONDS_MAX: Final = 0.001
"""Mean sync time above which the event loop never syncs itself: a slow disk must not stop it."""

SYNC_THREADS_MAX: Final = 16
"""Files of one data directory that are synced at the same time. A journal commits once for all
waiting threads: 16 files together needed a ninth of the sequential time, and more threads needed
longer."""

UNSYNCED_BYTES_MAX: Final = 536_870_912
"""Bytes appended to one data directory and not synced, where appends are acknowledged after their
sync. Waiting requests hold at most 128 MiB by default; producers with acks=0 do not wait. The
kernel stops a writer for up to 0.2 s when a disk cannot keep up; appends are on the loop."""

OWED_BYTES_MAX: Final = 67_108_864
"""Bytes acknowledged before their sync, in flush mode `interval`, above which a sync starts early:
the kernel's own limit on unwritten data stops the event loop."""

ROUND_ALONE_SECONDS: Final = 0.005
"""Time that a round of syncs delays the next. After it, synced logs are acknowledged, and the
others start their own round: one slow file delays no other log."""

SYNC_ON_LOOP_BYTES_MAX: Final = 16_384
"""Size above which the event loop never syncs an append: the next append is arriving, and the loop
reads it while a thread syncs this one."""

MAPPED_READ_BYTES_MIN: Final = 131_072
"""Reads of at least this size are mapped instead of copied. Below it a copy costs less than two
system calls and the page faults; at 1 MiB a mapping doubles the throughput of one core."""

DUTY_THREADS: Final = 2
"""Threads for checkpoints, segment swaps, deletes and compaction: a slow delete does not delay a
checkpoint."""

DUTIES_QUEUED_MAX: Final = 1_024
"""Duties that wait for a thread. The broker starts about ten at once; client requests that delete
topics add one each."""

READ_THREADS: Final = 4
"""Threads for reads that miss the page cache: a few slow disks' worth, few enough for two cores."""

READS_QUEUED_MAX: Final = 16_384
"""Cold reads that wait for a thread, about 1 KB each. A connection has one fetch at a time, so
12,000 connections fit."""

LOOKUP_THREADS: Final = 2
"""Searches by time that run at once. Each may hold one decompressed batch: 256 MiB in all."""

LOOKUPS_QUEUED_MAX: Final = 4_096
"""Searches by time that wait for a thread, over all clients, who take turns. Above it a search is
rejected with an error that clients retry."""

LOOKUP_SLICE_SECONDS: Final = 0.002
"""Time of one slice of a search by time on its thread. It holds the interpreter meanwhile, so it
may add this time to the latency of a request."""

LOOKUP_SLICE_RECORDS: Final = 4_096
"""Records that a search by time reads before it checks the clock and its client's connection: 20
microseconds compiled, 2 ms uncompiled."""

LOOKUP_REST_RATIO: Final = 1.0
"""Pause after each slice of a search, as a multiple of its time: half a core for each thread."""

LOOKUP_REST_SECONDS_MAX: Final = 0.02
"""Longest pause of a search after one slice: ten slices. A slice that waited for a slow disk was
long without work."""

COMPACTION_KEYS_MAX: Final = 500_000
"""Keys that one pass of compaction remembers: about 75 MB. Kafka's log.cleaner.dedupe.buffer.size
holds ten times as many in 128 MB; further keys wait for the next pass."""

SCAN_SLICE_RECORDS: Final = 128
"""Records that compaction reads in one step, after which it checks the clock: a fifth of a
millisecond compiled, one and a half uncompiled."""

SCAN_WINDOW_BYTES: Final = 65_536
"""Bytes of a decompressed batch that are copied at a time to search for keys. A larger record is
not copied."""

COMPACTION_PIECE_BYTES: Final = 1_048_576
"""Bytes that compaction copies or compresses in one step: a millisecond or two where that holds the
interpreter."""

COMPACTION_SLICE_SECONDS: Final = 0.002
"""Time of one slice of compaction on its thread. It holds the interpreter meanwhile, so it may add
this time to the latency of a request."""

COMPACTION_REST_RATIO: Final = 1.0
"""Pause after each slice, as a multiple of the slice's time: half of one core at most."""

METRIC_FAMILY_ROWS_MAX: Final = 20_000
"""Rows of one metric with labels: a scrape of a few megabytes."""

METRIC_LABEL_CHARACTERS_MAX: Final = 249
"""One label of a metric: a topic's longest name. A longer group name is cut and gets a digest."""

# --- Settings file ---

SETTINGS_FILE_BYTES_MAX: Final = 4_194_304
"""Largest settings file: ten thousand declared topics with a few settings each."""

DECLARED_TOPICS_MAX: Final = 10_000
"""Topics that one file may declare: as many as one CreateTopics request may name."""
