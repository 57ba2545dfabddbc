"""The matrix sees every check of every handler.

A check is an API, an operation and a resource type. Each one that a handler asks is answered wrong,
always yes and then always no; some cell must differ from the recording. A check without such a cell
would be one that a change could remove unseen.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from penstock.broker.access import Access
from penstock.broker.peer import Peer
from penstock.protocol.api_keys import ApiKey
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.principal import ANONYMOUS
from tests.access_matrix import recorded
from tests.access_matrix.arrangement import Arrangement
from tests.access_matrix.grants import FULL, LITERAL, RIGHT, Cell, all_cells
from tests.access_matrix.penstock_target import penstock_target
from tests.access_matrix.recorded import Recorded
from tests.access_matrix.requests import CASES
from tests.access_matrix.running import run_cells
from tests.access_matrix.targets import Target

WITHOUT_A_CHECK = {ApiKey.API_VERSIONS}
DECIDED_BY_A_GROUP = {ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS}
"""Without a share group, these answer with an error of the group, whatever the topics' rules are.
The matrix has no such group; `tests.broker.access.test_share_access` has their checks of topics."""


class Check(NamedTuple):
    """A question that a handler asks."""

    is_about_any_name: bool
    api: ApiKey
    operation: Operation
    resource_type: ResourceType

    def __str__(self) -> str:
        name = "some " if self.is_about_any_name else ""
        return f"{self.api.name}: {self.operation.name} on {name}{self.resource_type.name}"


class WrongAccess:
    """Notes the checks of users, and answers one of them wrong."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[Check] = set()
        self.wrong: Check | None = None
        self.wrong_answer = False
        allows, allows_any = Access.allows, Access.allows_any

        def allows_or_wrong(
            access: Access,
            peer: Peer,
            api_key: int,
            operation: Operation,
            resource_type: ResourceType,
            name: str,
            *,
            is_logged: bool = True,
        ) -> bool:
            check = Check(False, ApiKey(api_key), operation, resource_type)
            if self._is_wrong(peer, check):
                return self.wrong_answer
            return allows(
                access, peer, api_key, operation, resource_type, name, is_logged=is_logged
            )

        def allows_any_or_wrong(
            access: Access,
            peer: Peer,
            api_key: int,
            operation: Operation,
            resource_type: ResourceType,
        ) -> bool:
            check = Check(True, ApiKey(api_key), operation, resource_type)
            if self._is_wrong(peer, check):
                return self.wrong_answer
            return allows_any(access, peer, api_key, operation, resource_type)

        monkeypatch.setattr(Access, "allows", allows_or_wrong)
        monkeypatch.setattr(Access, "allows_any", allows_any_or_wrong)

    def _is_wrong(self, peer: Peer, check: Check) -> bool:
        if peer.principal == ANONYMOUS:
            return False
        self.seen.add(check)
        return check == self.wrong


def chosen_cells() -> list[Cell]:
    """One pattern and one host: cells that differ in rules. `full` has each pattern."""
    return [
        cell
        for cell in all_cells()
        if cell.block.host in {"", RIGHT} and (cell.block.pattern in {"", LITERAL} or is_full(cell))
    ]


def is_full(cell: Cell) -> bool:
    return cell.block.kind == FULL


def wrong_cells(
    recording: Recorded, target: Target, arrangement: Arrangement, api: ApiKey
) -> Iterator[str]:
    """Yield the differences of one API, cell by cell; a caller may stop at the first."""
    cases = [case for case in CASES if case.api == api]
    for cell, found in run_cells(target, chosen_cells(), arrangement, cases):
        yield from recorded.differences(recording, {cell: found})


@pytest.mark.slow
@pytest.mark.uncompiled
@pytest.mark.timeout(600)
def test_every_check_decides_some_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded.read()
    access = WrongAccess(monkeypatch)
    unseen = []
    with penstock_target(chosen_cells()) as target:
        arrangement = Arrangement(target)
        arrangement.build()
        for _ in run_cells(target, chosen_cells(), arrangement):
            pass
        checks = sorted(access.seen)
        for check in checks:
            if check.api in DECIDED_BY_A_GROUP and check.resource_type is ResourceType.TOPIC:
                continue
            for answer in (True, False):
                access.wrong, access.wrong_answer = check, answer
                if next(wrong_cells(recording, target, arrangement, check.api), None) is None:
                    unseen.append(f"{check}: always {'yes' if answer else 'no'}")
        arrangement.close()
    assert not unseen, "add requests whose outcome these checks decide"
    assert {case.api for case in CASES} - {check.api for check in checks} == WITHOUT_A_CHECK
