"""`QuotaAdministration`: quotas are changed in the metadata, and the broker follows the metadata.

The newest image has the quotas in force: changes by another broker of the cluster take effect in
the same way, and existing quotas are loaded when this broker starts. `broker.quotas` does the
counting.
"""

from collections.abc import Sequence
from functools import partial

from penstock.broker.quotas.quotas import Quotas
from penstock.cluster.changes import Change, QuotasChanged
from penstock.cluster.image import MetadataImage
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.service import MetadataService
from penstock.core.errors import PenstockError
from penstock.node.administration.each_change import change_each


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
