"""What a running pipeline shows to others, and how it goes on after a failure.

Nothing here writes a row. A metric, an event or a published offset that fails never stops a
pipeline.
"""
