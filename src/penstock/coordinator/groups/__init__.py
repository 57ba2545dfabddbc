"""Groups and their committed offsets: the state machine behind one partition of the offsets topic.

`shard` routes; `offsets`, `classic` and `consumer` decide; `group` holds their shared state.
"""
