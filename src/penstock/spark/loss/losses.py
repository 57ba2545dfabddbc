"""Reports lost data to a query: raises an error, or logs a warning and counts.

One place for the driver and the tasks, so that `failOnDataLoss` means the same everywhere.
"""

import logging
from collections.abc import Sequence

from penstock.spark.loss.data_loss import Loss, data_loss_error, describe_losses

LOGGER = logging.getLogger("penstock.spark")


class LossCounter:
    """Raises, or logs and counts; the counts are for one run of the query."""

    def __init__(self, *, fail_on_data_loss: bool) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self.offsets = 0
        """The number of skipped offsets, as far as it is known."""
        self.partitions = 0
        """How often a partition had a loss."""

    def report(self, losses: Sequence[Loss]) -> None:
        """Raise or log these losses, if there are any."""
        if not losses:
            return
        if self._fail_on_data_loss:
            raise data_loss_error(losses)
        self.offsets += sum(loss.offsets for loss in losses)
        self.partitions += len(losses)
        LOGGER.warning(
            "data was lost, and failOnDataLoss is false, so the query goes on:\n%s\n"
            "since it started: partitions touched: %d, offsets skipped: %d",
            describe_losses(losses),
            self.partitions,
            self.offsets,
        )
