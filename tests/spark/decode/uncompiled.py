"""The modules of a kernel as plain Python, beside the compiled ones of the same names."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import penstock.spark

FOLDER = Path(penstock.spark.__file__).parent


def load_uncompiled(names: Sequence[str]) -> ModuleType:
    """Load the files in this order, each seeing the ones before it; the last one is returned.

    The names are like `decode.kernel`. What others import by these names stays what it was.
    """
    before = {name: sys.modules.get(f"penstock.spark.{name}") for name in names}
    packages = {
        name: importlib.import_module(f"penstock.spark.{name.rpartition('.')[0]}") for name in names
    }
    try:
        for name in names:
            path = FOLDER / (name.replace(".", "/") + ".py")
            spec = importlib.util.spec_from_file_location(f"penstock.spark.{name}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[f"penstock.spark.{name}"] = module
            setattr(packages[name], name.rpartition(".")[2], module)
            spec.loader.exec_module(module)
        return module
    finally:
        for name, old in before.items():
            if old is None:
                del sys.modules[f"penstock.spark.{name}"]
            else:
                sys.modules[f"penstock.spark.{name}"] = old
                setattr(packages[name], name.rpartition(".")[2], old)


def uncompiled_columns() -> ModuleType:
    """`decode.columns` over an uncompiled kernel, which does not tell that it is slow."""
    module = load_uncompiled(
        [
            "decode.record_parser",
            "decode.column_writer",
            "decode.kernel",
            "decode.buffers",
            "decode.columns",
        ]
    )
    # Its warning has its own test.
    vars(module)["_has_warned"] = True
    return module
