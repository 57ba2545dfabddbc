"""The table of proofs: commands that exist, figures that are read, rows that stay."""

import dataclasses
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prove() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prove", ROOT / "tools" / "prove.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prove"] = module
    spec.loader.exec_module(module)
    return module


def test_every_command_names_what_exists(prove: ModuleType) -> None:
    for proof in prove.PROOFS:
        if proof.command[0] == "make":
            assert f"\n{proof.command[1]}: " in (ROOT / "Makefile").read_text()
            continue
        paths = [word for word in proof.command if word.startswith(("tests/", "tools/"))]
        modules = [word for word in proof.command if word.startswith(("compat.", "tests."))]
        paths += [module.replace(".", "/") + ".py" for module in modules]
        assert paths, proof.name
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_page_has_a_row_for_every_proof(prove: ModuleType) -> None:
    page = prove.PAGE.read_text()
    for proof in prove.PROOFS:
        assert f"| {proof.title} |" in prove.between(page, "figures"), proof.name
    assert prove.between(page, "guards")
    assert prove.between(page, "machine")


def test_figures_are_read_from_what_commands_print(prove: ModuleType) -> None:
    lines = ("10 changes, 5 cuts, 7 recoveries checked", "2 changes, 1 cuts, 3 recoveries checked")
    output = "".join(f"workload {number}: {line}\n." for number, line in enumerate(lines))
    read = prove.PROOFS[0].figures[0](output)
    assert read == "2 workloads, 12 changes, 6 cuts, 10 recoveries checked"
    assert prove.passed("..\n12 passed, 3 deselected in 5.0s\n") == "12 tests passed"
    assert prove.passed("1 failed in 5.0s\n") == ""
    read = prove.lines_like("cuts:")(".20 power cuts: 7 records\nother\n")
    assert read == "20 power cuts: 7 records"


def test_only_a_run_that_passed_changes_its_row(prove: ModuleType) -> None:
    first, second = prove.PROOFS[:2]
    good = prove.Outcome(first, True, "new", 3.0, "")
    bad = prove.Outcome(second, False, "broken", 3.0, "")
    kept = prove.figures_table([dataclasses.replace(good, proof=second, figures="old")], "", "d1")
    table = prove.figures_table([good, bad], kept, "d2").splitlines()
    assert "| new | d2, 3 s |" in table[2]
    assert "| old | d1, 3 s |" in table[3]
    assert "not run yet" in table[4]


def test_guards_are_found_in_the_output(prove: ModuleType) -> None:
    output = ".guard ack-before-sync: lost: a\nno_sync: cut after 3 changes, lost\nother: line\n"
    rows = prove.guards_table(output).splitlines()[2:]
    assert rows == [
        "| ack-before-sync | lost: a |",
        "| no sync (storage) | cut after 3 changes, lost |",
    ]


def test_a_compiled_proof_runs_on_the_release_without_the_sources(
    prove: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = tmp_path / "python"
    release.symlink_to(sys.executable)
    monkeypatch.setattr(prove, "OUTPUT", tmp_path)
    monkeypatch.setenv(prove.RELEASE_VARIABLE, str(release))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'] or 'no path')"
    command = ("python", "-c", script)
    compiled = prove.Proof("p", "t", command, (prove.lines_like("python"),), is_compiled=True)
    assert prove.run(compiled).figures == f"{release} no path"
    plain = dataclasses.replace(compiled, is_compiled=False)
    assert prove.run(plain).figures == f"{sys.executable} {ROOT / 'src'}"
    monkeypatch.delenv(prove.RELEASE_VARIABLE)
    assert prove.run(compiled).figures == f"{sys.executable} {ROOT / 'src'}"
