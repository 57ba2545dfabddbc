"""Groups, offsets and transactions as replicated state machines over internal topics.

`runtime` drives shards; a shard (`groups.shard`, `transactions.shard`) decides and does no IO.
What they need of the log and of the cluster is in `ports` and `metadata_view`; `node` fills it.
"""
