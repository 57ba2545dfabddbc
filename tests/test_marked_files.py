"""A run of one marker reads only the files that name it, and overlooks none."""

from pathlib import Path

import pytest

from tests.marked_files import MarkedFiles, named_markers, required_markers

TESTS = Path(__file__).resolve().parent


@pytest.mark.parametrize(
    ("expression", "required"),
    [
        ("crash", {"crash"}),
        ("slow and not spark", {"slow"}),
        ("spark and every_spark", {"spark", "every_spark"}),
        ("not interop and not crash", set()),
        ("crash or not crash", set()),
        ("not (interop or crash)", set()),
        ("uncompiled", set()),
        ("", set()),
    ],
)
def test_the_markers_that_each_selected_test_has(expression: str, required: set[str]) -> None:
    assert required_markers(expression) == required


def test_a_marker_may_be_named_above_the_file() -> None:
    assert "interop" in named_markers(TESTS / "broker/handlers/test_produce.py")
    assert "interop" not in named_markers(TESTS / "records/test_record.py")
    assert "crash" in named_markers(TESTS / "crash/test_kill.py")


def test_a_marker_that_is_not_named_is_an_error(pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @getattr(pytest, "mark").crash
        def test_hidden(): pass
        """
    item = pytester.getitem(source, "test_hidden")
    item.config.addinivalue_line("markers", "crash: of this test")
    with pytest.raises(pytest.UsageError, match=r"write pytest\.mark\.crash there"):
        MarkedFiles(item.config).pytest_collection_modifyitems([item])
