"""What a person wants to know of a pipeline, without running it: `check`, `status`, bad records.

Everything comes out as plain values, which the command line and any other program show as they
like. Nothing here changes a topic, a table or a checkpoint.
"""
