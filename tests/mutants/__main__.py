"""`make mutants`: change one operation of a file at a time, run its tests, and list the changes that none notices.

A few lines of our own: mutmut and cosmic-ray run a suite from a copy of the tree for each mutant, and ours needs only
the tests that mirror a file. What survives either changes nothing, or wants a test.
"""

import argparse
import ast
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Files and the tests that judge them.
JUDGED = {
    "clients/peakplan_client/client.py": ["tests/clients/test_client.py", "-k", "not real_service"],
    "clients/peakplan_client/body.py": ["tests/clients/test_client.py", "-k", "unfolded or become"],
    "clients/peakplan_client/mapping.py": ["tests/clients/test_mapping.py", "tests/clients/test_searching.py"],
    "clients/peakplan_client/searching.py": ["tests/clients/test_searching.py"],
    "clients/peakplan_client/engines": ["tests/clients/test_engines.py", "tests/clients/test_sqlite.py"],
    "service/gateway": ["tests/gateway"],
    "service/decoding/tree.py": ["tests/decoding/test_tree.py"],
    "service/decoding/constraint.py": ["tests/decoding/test_constraint.py"],
    "service/decoding/generation.py": ["tests/decoding/test_generation.py", "tests/decoding/test_batch.py"],
    "service/decoding/verification.py": ["tests/decoding/test_generation.py", "tests/decoding/test_tree.py"],
    "infra/fleet/sizing.py": ["tests/infra/fleet/test_scaling.py", "tests/infra/fleet/test_settings.py"],
    "infra/fleet/scaling.py": ["tests/infra/fleet/test_scaling.py"],
    "infra/fleet/alarms.py": ["tests/infra/fleet/test_alarms.py"],
}
_SECONDS = 300  # a mutant that runs for ever is noticed
_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, what changes, and the whole text with the change."""
    count = sum(1 for _ in ast.walk(ast.parse(source)))
    for number in range(count):
        tree = ast.parse(source)
        node = next(node for at, node in enumerate(ast.walk(tree)) if at == number)
        if (told := _change(node)) is not None:
            yield getattr(node, "lineno", 0), told, ast.unparse(tree)


def _change(node: ast.AST) -> str | None:
    """Change a node in place; return what was done, or None where there is nothing to change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        node.ops[0] = _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        return f"comparison in {ast.unparse(node)}"
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
        return f"operation in {ast.unparse(node)}"
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value = node.value + 1
        return f"number, now {node.value}"
    if isinstance(node, ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return f"condition {ast.unparse(node.test)}"
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        node.value = ast.Constant(None)
        return "return None"
    return None


def survives(path: Path, text: str, tests: list[str]) -> bool:
    """Tell whether the tests pass with the file changed to `text`; it is put back whatever happens."""
    before = path.read_bytes()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        path.write_text(text, encoding="utf-8")
        return subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_bytes(before)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the file is put back then, too
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=list(JUDGED), help="of those that it knows")
    parser.add_argument("--every", type=int, default=1, help="try one in so many, for a first look")
    given = parser.parse_args()
    for name in given.files:
        tests = JUDGED[name]
        paths = sorted(Path(name).glob("*.py")) if Path(name).is_dir() else [Path(name)]
        tried, alive = 0, 0
        for path in paths:
            for line, told, text in list(mutants(path.read_text(encoding="utf-8")))[:: given.every]:
                tried += 1
                if survives(path, text, tests):
                    alive += 1
                    print(f"{path}:{line}: {told}", flush=True)
        print(f"{name}: {tried - alive} of {tried} noticed ({(tried - alive) / max(tried, 1):.2f})", flush=True)


if __name__ == "__main__":
    main()
