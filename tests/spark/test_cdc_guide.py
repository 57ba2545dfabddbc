"""The guide from a database to a table cannot go stale: its commands run as they are printed.

The connector of the guide is the one of `cdc/test_cdc_database.py`, with a real database.
"""

from pathlib import Path

import pytest

from tests.docs.test_guides import ADDRESS, commands
from tests.oracle.penstock_broker import penstock_broker
from tests.spark.test_table_guide import FOLDER, PIECE, run, same_form

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "cdc.md").read_text()

TABLES = {
    "orders": "id,name,_sequence",
    "versions": "id,name,_sequence,_valid_from,_valid_to,_is_current,_is_deleted",
}


@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_every_command_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    with penstock_broker(tmp_path / "broker") as broker:

        def here(text: str) -> str:
            return text.replace(FOLDER, str(folder)).replace(ADDRESS, broker.bootstrap)

        for piece in PIECE.finditer(GUIDE):
            if piece["file"] is not None:
                (folder / piece["file"]).write_text(here(piece["text"]))
                continue
            for command, printed in commands(piece["block"]):
                done = run(here(command), folder, broker.bootstrap)
                assert same_form(done.stdout) == same_form(here(printed)), (
                    f"{command}\n{done.stdout}\n{done.stderr}"
                )
                assert done.returncode == 0, f"{command}\n{done.stderr}"
        for name, columns in TABLES.items():
            same = _through_spark(folder, name, broker.bootstrap)
            own, staged = (
                run(f"python query.py {table} {columns}", folder, broker.bootstrap)
                for table in (name, same)
            )
            assert own.stdout
            assert staged.stdout == own.stdout, staged.stderr


def _through_spark(folder: Path, name: str, bootstrap: str) -> str:
    """Run the pipeline of a table again, its rows through Spark, into a table of its own."""
    definition = next(one for one in folder.glob("*.toml") if f'"shop.{name}"' in one.read_text())
    text = definition.read_text().replace("[pipeline]", '[pipeline]\nmode = "dataframe"')
    text = text.replace(f"shop.{name}", f"shop.{name}_staged").replace("checkpoint-", "staged-")
    (folder / "staged.toml").write_text(text)
    done = run("penstock table run staged.toml --once", folder, bootstrap)
    assert done.returncode == 0, done.stderr
    (folder / "staged.toml").unlink()
    return f"{name}_staged"


def test_the_guide_has_files_and_commands() -> None:
    files = {piece["file"] for piece in PIECE.finditer(GUIDE) if piece["file"]}
    assert files == {"rows.toml", "versions.toml", "query.py"}
