"""Which tests take which architecture of `tests/bases.py`, read in their source: the table in docs/models.md.

Whether a test passes is not here: CI runs them, and below the table stands each column's file.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
_BASES = "bases.py"
_PARAMETER, _EVERY = "architecture", "ARCHITECTURES"


@dataclass(frozen=True, slots=True)
class Column:
    """What is seen of an architecture, and the test that sees it."""

    title: str
    file: str
    test: str


COLUMNS = (
    Column(
        "imports, plans on processors",
        "weights/test_bases.py",
        "test_it_is_imported_moved_and_plans_transformers_tokens",
    ),
    Column(
        "exported, imported again",
        "weights/test_bases.py",
        "test_it_is_exported_to_every_engine_and_imported_again",
    ),
    Column("tokens over NxDI", "conformance/neuron/test_bases.py", "test_its_plans_have_transformers_tokens"),
    Column(
        "trained for 50 steps",
        "training/test_every_base.py",
        "test_it_is_trained_served_and_goes_through_an_export",
    ),
    Column("hosted by Triton", "engines/triton/test_lossless.py", "test_an_import_gives_transformers_tokens"),
    Column(
        "baked into an image (`PEAKPLAN_EVERY_ARCHITECTURE=1`)",
        "container/test_image.py",
        "test_an_import_of_every_architecture_is_baked_and_plans",
    ),
)


def architectures() -> list[str]:
    """Return the names of the small models, in their order."""
    made = _assigned(_parsed(_BASES), _EVERY)
    assert isinstance(made, ast.Dict)
    return [str(ast.literal_eval(key)) for key in made.keys if key is not None]


def seen(column: Column) -> list[str]:
    """Return the architectures that a column's test takes. Raises LookupError where it is not found, or takes none."""
    module = _parsed(column.file)
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == column.test:
            for decorator in node.decorator_list:
                mark = _assigned(module, decorator.id) if isinstance(decorator, ast.Name) else decorator
                if (names := _names(mark)) is not None:
                    return names
    raise LookupError(f"tests/{column.file} has no {column.test} with a parameter {_PARAMETER!r}")


def table() -> str:
    """Return the table of architectures, and below it the files of its columns."""
    rows = [
        "| architecture | " + " | ".join(column.title for column in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    taken = [seen(column) for column in COLUMNS]
    for name in architectures():
        rows.append(f"| {name} | " + " | ".join("yes" if name in names else "not seen" for names in taken) + " |")
    files = "; ".join(f"{column.title}: `tests/{column.file}`" for column in COLUMNS)
    return "\n".join([*rows, "", f"<sub>{files}.</sub>"])


def _parsed(file: str) -> ast.Module:
    return ast.parse((TESTS / file).read_text(encoding="utf-8"))


def _assigned(module: ast.Module, name: str) -> ast.expr:
    """Return what a module assigns to a name. Raises LookupError where nothing is."""
    for node in module.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value
    raise LookupError(f"no module-level {name}")


def _names(mark: ast.expr) -> list[str] | None:
    """Return the architectures of `pytest.mark.parametrize("architecture", ...)`; None for any other decorator."""
    if not isinstance(mark, ast.Call) or not isinstance(mark.func, ast.Attribute) or mark.func.attr != "parametrize":
        return None
    parameter, values = mark.args[:2]
    if ast.literal_eval(parameter) != _PARAMETER:
        return None
    if isinstance(values, ast.Name) and values.id == _EVERY:
        return architectures()
    return [str(name) for name in ast.literal_eval(values)]
