"""Groups, offsets and transactions as replicated state machines over internal topics.

`runtime` drives shards; a shard (`groups.shard`, `transactions.shard`) decides and does no IO.
Their ports to the log and the cluster are in `ports` and `metadata_view`; `node` fills them.
"""
