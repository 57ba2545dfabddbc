"""The code of the gRPC guide, with the client that its command generates, on a broker here."""

import asyncio
import re
import runpy
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from grpc_tools import protoc  # type: ignore[import-untyped]

from tests.node.grpc_gateway.grpc_stage import PROTO, generated, grpc_broker
from tests.node.push.push_stage import run

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "grpc.md").read_text()


def test_the_code_of_the_guide_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    # The messages are registered once in a process.
    monkeypatch.setitem(sys.modules, "penstock_pb2", generated())
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={PROTO.parent}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--grpc_python_out={tmp_path}",
            str(PROTO),
        ]
    )
    assert status == 0
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "guide.py"

    async def test() -> None:
        async with grpc_broker(topics={"prices": 1}) as broker:
            file.write_text(code.replace("9096", str(broker.grpc_port)))
            names = runpy.run_path(str(file))
            await asyncio.to_thread(names["main"])

    run(test)
    monkeypatch.delitem(sys.modules, "penstock_pb2_grpc", raising=False)
    assert capsys.readouterr().out.splitlines() == ["0 0", "0 b'apple' b'1.20'", "prices 1"]


def test_the_bounds_of_the_guide_are_those_of_the_code() -> None:
    from penstock.edge.grpc_gateway import gateway_limits as limits

    for value in (
        limits.MESSAGE_BYTES_MAX,
        limits.MESSAGES_BYTES_MAX,
        limits.RECORDS_MAX,
        limits.FIELDS_MAX,
        limits.CALLS_MAX,
        limits.CONNECTIONS_MAX,
    ):
        assert f"{value:,}" in GUIDE
    assert f"of one address {limits.CALLS_PER_ADDRESS_MAX}" in GUIDE
    sessions = limits.MESSAGES_BYTES_MAX // limits.MESSAGE_BYTES_MAX
    assert f"{sessions} sessions are open at one time" in GUIDE
