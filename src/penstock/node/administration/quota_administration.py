"""`QuotaAdministration`: quotas are changed in the metadata, and the broker follows the metadata.

The newest image has the quotas in force: changes by another broker of the cluster take effect in
the same way, and existing quotas are loaded when this broker starts. `broker.quotas` does the
counting.
"""

from collections.abc import Sequence
from functools import partial

from penstock.broker.quotas.quotas import Quotas
from penstock.broker.quotas.rates import Windows
from penstock.cluster.changes import Change, QuotasChanged
from penstock.cluster.image import MetadataImage
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.service import MetadataService
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.node.administration.each_change import change_each


def open_quotas(settings: Settings, clock: Clock, metrics: Registry) -> Quotas:
    """Return the counters of quotas; no quota is set yet."""
    given = settings.quotas
    quotas = Quotas(
        clock,
        Windows(given.window_count, given.window_seconds * 1000),
        Windows(given.controller_window_count, given.controller_window_seconds * 1000),
    )
    quotas.register(metrics)
    return quotas


class QuotaChanges:
    """Changes quotas, and puts them in force."""

    def __init__(self, metadata: MetadataService, quotas: Quotas) -> None:
        self._metadata = metadata
        self._quotas = quotas
        for entity, image in metadata.image.quotas.items():
            quotas.put(entity, image.quotas)
        metadata.subscribe(self._follow)

    async def change(
        self, changes: Sequence[QuotaChange], *, validate_only: bool
    ) -> list[PenstockError | None]:
        """Return one outcome for each entity; when the call returns, its quotas are in force."""
        return await change_each(
            changes, partial(self._metadata.change_quotas, validate_only=validate_only)
        )

    def _follow(
        self,
        before: MetadataImage,  # noqa: ARG002 (a subscriber's)
        after: MetadataImage,  # noqa: ARG002
        changes: tuple[Change, ...],
    ) -> None:
        for change in changes:
            if isinstance(change, QuotasChanged):
                quotas = change.quotas
                self._quotas.put(change.entity, {} if quotas is None else quotas.quotas)
