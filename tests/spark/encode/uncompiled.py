"""The encoder over its kernel as plain Python."""

from types import ModuleType

from tests.spark.decode.uncompiled import load_uncompiled


def uncompiled_encoder() -> ModuleType:
    """`encode.encoder`, which does not tell that it is slow."""
    module = load_uncompiled(
        [
            "encode.binary_column",
            "encode.open_batch",
            "encode.kernel",
            "encode.arrow_rows",
            "encode.encoder",
        ]
    )
    # Its warning has its own test.
    vars(module)["_has_warned"] = True
    return module
