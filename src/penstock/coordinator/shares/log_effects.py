"""The effect of a share shard. A plain value: `node` carries it out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Delete all records below an offset of a partition of `__share_group_state`.

    The result is None. No record above needs them.
    """

    partition: int
    offset: int
