"""`Transfer`: the value of the key `transfer`, which exists while metadata is moved. Pure.

The move of a broker's metadata between its data directory and the store of a cluster takes many
transactions and changes files. The data directory decides about the outcome: one replaced file,
`meta.properties`, says where the metadata is. This key keeps others away until the store agrees
with the directory: no broker founds a cluster or registers while it exists. The broker of the named
directory settles it (`node.transfer`).
"""

import json
from enum import StrEnum
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError, StoreError

_VERSION: Final = 1


class TransferRefusedError(PenstockError):
    """A transfer that is not possible now, or a start during the transfer of another broker."""


class Direction(StrEnum):
    """The destination of the metadata."""

    INTO_CLUSTER = "cluster"
    INTO_DIRECTORY = "directory"


class Transfer(NamedTuple):
    """One transfer of metadata."""

    direction: Direction
    broker_id: int
    directory_id: str
    cluster_id: str
    nonce: str
    """Distinguishes the attempts: after a lost answer, one recognises its own write."""

    def is_of(self, directory_id: str | None, cluster_id: str | None) -> bool:
        """Return whether it moves the metadata of this directory."""
        return (self.directory_id, self.cluster_id) == (directory_id, cluster_id)

    @property
    def problem(self) -> str:
        """Why no other broker can start, and the remedy."""
        if self.direction is Direction.INTO_CLUSTER:
            return (
                f"the metadata of broker {self.broker_id} is being imported here: finish it with "
                "`penstock cluster import` on its data directory, then start that broker first"
            )
        return (
            f"the metadata is being moved back into the data directory of broker {self.broker_id}: "
            "finish it with `penstock cluster export` there, or start that broker first"
        )


def write_transfer(transfer: Transfer) -> bytes:
    """Encode a transfer."""
    fields = {
        "v": _VERSION,
        "to": transfer.direction,
        "broker": transfer.broker_id,
        "directory_id": transfer.directory_id,
        "cluster_id": transfer.cluster_id,
        "nonce": transfer.nonce,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def read_transfer(value: bytes) -> Transfer:
    """Return a transfer."""
    try:
        fields = json.loads(value)
        version = fields["v"]
        if version == _VERSION:
            return Transfer(
                Direction(fields["to"]),
                int(fields["broker"]),
                str(fields["directory_id"]),
                str(fields["cluster_id"]),
                str(fields["nonce"]),
            )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"the transfer in the metadata store is damaged: {error!r}") from error
    raise StoreError(
        f"the transfer in the metadata store has version {version!r}, this version of Penstock "
        f"reads {_VERSION}: it needs a newer Penstock"
    )
