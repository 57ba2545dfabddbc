"""Collections do not visit an untracked container; reference counts free it."""

import gc
import weakref

import pytest

from penstock.core.untracked import untracked


class Element:
    pass


LARGE = [[[]], ([],), {1: []}, {frozenset((1, 2))}]


@pytest.mark.parametrize("container", LARGE, ids=lambda container: type(container).__name__)
def test_collections_do_not_visit_it(container: object) -> None:
    assert gc.is_tracked(container)
    assert untracked(container) is container
    assert not gc.is_tracked(container)
    assert not gc.is_tracked(untracked(container)), "a second time is harmless"


def test_its_elements_are_freed_with_it() -> None:
    element = Element()
    freed = weakref.ref(element)
    container = untracked([element])
    del element
    assert freed() is not None
    del container
    assert freed() is None


def test_a_list_stays_untracked_when_it_grows() -> None:
    """Guards `freeing`: its list is filled after it was created."""
    grown: list[object] = untracked([])
    grown.extend([[] for _ in range(100)])
    assert not gc.is_tracked(grown)
