"""`penstock.d.ts`: it describes `penstock.js`, and TypeScript accepts right uses only."""

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tests.oracle.cache import built, content_key, progress, run, tool

STATIC = files("penstock.edge").joinpath("static")
TYPESCRIPT = Path(__file__).parent / "typescript"
RIGHT = """
import { Penstock, PenstockError, type PenstockRecord } from "./penstock.js";

const broker = new Penstock("ws://localhost:8081/v1/push", { user: "ann", password: "secret" });
broker.addEventListener("close", (event) => console.log(event.detail.code));
const prices = broker.subscribe("prices", { from: { 0: 17 }, credit: 10 }, async (record) => {
  const text: string | null | undefined = record.value;
  const price = record.json<{ cents: number }>().cents;
  console.log(text, price + record.offset, record.headers[0]?.[1]?.length);
});
export async function change(key: string): Promise<number> {
  await prices.ready;
  try {
    const { offset } = await broker.publish("prices", "42", { key, headers: [["from", null]] });
    return offset;
  } catch (error) {
    if (error instanceof PenstockError && error.retriable) return -1;
    throw error;
  }
}
export function show(record: PenstockRecord): string {
  return `${record.topic} ${record.partition}`;
}
"""
WRONG = {
    'broker.subscribe("t", { from: "begin" }, () => {});': '"begin"',
    'broker.subscribe("t", { credits: 5 }, () => {});': "credits",
    'broker.publish("t", 42);': "number",
    'const at: string = (await broker.publish("t", "v")).offset;': "string",
    'broker.addEventListener("closed", () => {});': "PenstockEvents",
    'broker.publish("t");': "2-3 arguments",
}


def names_in(text: str) -> set[str]:
    """Return the exported classes."""
    return set(re.findall(r"^export class (\w+)", text, re.MULTILINE))


def members_of(text: str, name: str) -> set[str]:
    """Return the methods and properties of a class that a user may use."""
    body = re.split(rf"^export class {name}\b", text, flags=re.MULTILINE)[1].split("\n}\n", 1)[0]
    declared = r"^  (?:readonly |get |async )*([a-z]\w*)[?]?(?:<.*?>)?[(:]"
    assigned = r"^    this\.([a-z]\w*) = "
    found = re.findall(declared, body, re.MULTILINE) + re.findall(assigned, body, re.MULTILINE)
    return set(found) - {"constructor", "name"}


def test_the_types_name_what_the_module_has() -> None:
    module = STATIC.joinpath("penstock.js").read_text()
    types = STATIC.joinpath("penstock.d.ts").read_text()
    assert names_in(types) == names_in(module)
    for name in ("Penstock", "Subscription", "PenstockError"):
        inherited = {"addEventListener"} if name == "Penstock" else set()
        assert members_of(types, name) - inherited == members_of(module, name), name
    assert members_of(module, "PenstockRecord") <= members_of(types, "PenstockRecord")


def compiler() -> list[str]:
    """Return the command of TypeScript's compiler."""
    parts = [TYPESCRIPT / "package.json", TYPESCRIPT / "package-lock.json"]

    def build(folder: Path) -> None:
        progress("installing TypeScript by npm")
        for part in parts:
            shutil.copy(part, folder)
        npm = tool("npm", "install npm (Debian: npm)")
        run([npm, "ci", "--no-audit", "--no-fund", "--silent"], folder=folder)

    folder = built(f"interop/typescript-{content_key(*parts)}", build)
    node = tool("node", "install Node.js, 18 or later (Debian: nodejs)")
    return [node, str(folder / "node_modules" / "typescript" / "bin" / "tsc")]


def compiled(folder: Path, text: str) -> str:
    """Return the errors of a program that uses the module."""
    for name in ("penstock.js", "penstock.d.ts"):
        (folder / name).write_bytes(STATIC.joinpath(name).read_bytes())
    (folder / "page.ts").write_text(text)
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "es2022"]
    options += ["--moduleResolution", "bundler", "--lib", "es2022,dom"]
    done = subprocess.run(
        [*compiler(), *options, "page.ts"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_typescript_accepts_right_uses(tmp_path: Path) -> None:
    assert compiled(tmp_path, RIGHT) == ""


@pytest.mark.slow
def test_typescript_refuses_wrong_uses(tmp_path: Path) -> None:
    head = 'import { Penstock } from "./penstock.js";\nconst broker = new Penstock("ws://h");\n'
    wrong = "\n".join(WRONG)
    errors = compiled(tmp_path, f"{head}{wrong}\nexport {{}};\n").splitlines()
    assert len([one for one in errors if one.startswith("page.ts")]) == len(WRONG)
    for cause in WRONG.values():
        assert any(cause in one for one in errors), cause
