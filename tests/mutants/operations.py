"""What a mutant is: one statement of a function or module with one operation changed."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

# The boundary moves, and the comparison turns round.
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# What the type checker holds: a dataclass that is not frozen any more is one that nobody changes.
_UNTOUCHED = ("annotation", "returns", "type_params", "decorator_list")
_OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A change, told by the smallest statement around it, so that it is known again when lines move."""

    file: str
    function: str  # dotted, with its classes; "" for a statement of the module
    line: int
    starts: int  # the first line of the function, decorators included; 0 for a statement of the module
    before: str
    after: str
    tree: ast.Module = field(repr=False)
    node: ast.AST = field(repr=False)
    replacement: ast.AST = field(repr=False)

    @property
    def source(self) -> str:
        """The whole file, changed."""
        return ast.unparse(_replaced(self.tree, self.node, self.replacement))

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yield every change of a file, each result once."""
    tree = ast.parse(source)
    seen = set()
    for statement, function, starts in _statements(tree, "", 0):
        before = _told(statement)
        for node in _own_nodes(statement):
            for replacement in _replacements(node):
                after = _told(_replaced(statement, node, replacement))
                if after != before and (statement.lineno, after) not in seen:
                    seen.add((statement.lineno, after))
                    yield Mutant(file, function, statement.lineno, starts, before, after, tree, node, replacement)


def _statements(node: ast.AST, function: str, starts: int) -> Iterator[tuple[ast.stmt, str, int]]:
    """Yield each statement that may be changed, the function that it is in and where that starts."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert | ast.Import | ast.ImportFrom) or _is_for_types(child):
            continue  # what is asserted beside the tests is for the type checker
        within, first = function, starts
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{function}.{child.name}".lstrip(".")
            if not isinstance(child, ast.ClassDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
        if isinstance(child, ast.stmt):
            yield child, function, starts
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child, within, first)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a statement and its expressions, without the statements in it and without annotations."""
    yield statement
    waiting = [child for name, child in _fields(statement) if name not in _UNTOUCHED]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            continue
        yield node
        waiting += [child for name, child in _fields(node) if name != "annotation"]


def _fields(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield name, one


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in place of a node."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    match node:
        case ast.Compare(left, [operation], [right]):
            for other in _COMPARISONS[type(operation)]:
                yield ast.Compare(left, [other()], [right])
        case ast.Compare(left, [first, *more], rights):  # a chain: its first bound
            for other in _COMPARISONS[type(first)]:
                yield ast.Compare(left, [other(), *more], rights)
            for other in _COMPARISONS[type(more[-1])]:
                yield ast.Compare(left, [first, *more[:-1], other()], rights)
        case ast.BinOp(left, operation, right) if type(operation) in _ARITHMETIC:
            if not (_is_text(left) or _is_text(right)):
                yield ast.BinOp(left, _ARITHMETIC[type(operation)](), right)
        case ast.BoolOp(operation, values):
            yield ast.BoolOp(ast.Or() if isinstance(operation, ast.And) else ast.And(), values)
            for left_out in range(len(values)):
                rest = values[:left_out] + values[left_out + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(operation, rest)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.IfExp(_, body, orelse):
            yield body
            yield orelse
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from map(ast.Constant, _numbers(value))
        case ast.comprehension(target, iterable, [_, *_], asynchronous):
            yield ast.comprehension(target, iterable, [], asynchronous)
        case ast.Call(ast.Name(name), arguments, keywords) if name in _OPPOSITES:
            yield ast.Call(ast.Name(_OPPOSITES[name], ast.Load()), arguments, keywords)


def _of_statement(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield what may stand in place of a whole statement: nothing, or the same under the contrary."""
    match node:
        case ast.If(test, body, orelse):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.While(test, body, orelse) if not isinstance(test, ast.Constant):
            yield ast.While(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield ast.Return(None)
        case ast.Expr(ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()) | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.AugAssign(target, operation, value):
            yield ast.Pass()
            if type(operation) in _ARITHMETIC and not _is_text(value):
                yield ast.AugAssign(target, _ARITHMETIC[type(operation)](), value)
        case ast.Assign([ast.Attribute() | ast.Subscript()], _):
            yield ast.Pass()


def _numbers(value: float) -> tuple[float, ...]:
    """Return other numbers: a small integer counts something, where one more matters; any other measures something."""
    if isinstance(value, int) and abs(value) < 10:
        return (value + 1, 0) if value else (1,)
    return 2 * value, value // 2 if isinstance(value, int) else value / 2


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _replaced(root: ast.AST, node: ast.AST, replacement: ast.AST) -> ast.AST:
    """Return a copy of a tree with one node replaced."""
    if root is node:
        return ast.copy_location(copy.copy(replacement), node) if hasattr(node, "lineno") else replacement
    holder = next(each for each in ast.walk(root) for _, child in _fields(each) if child is node)
    (name,) = {name for name, child in _fields(holder) if child is node}
    value = getattr(holder, name)
    changed = copy.copy(holder)
    new = [replacement if one is node else one for one in value] if isinstance(value, list) else replacement
    setattr(changed, name, new)
    return _replaced(root, holder, changed)


def _told(statement: ast.AST) -> str:
    """Return a statement in a line: of one with a body, its head alone."""
    head = copy.copy(statement)
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        if isinstance(getattr(head, name, None), list):
            setattr(head, name, [ast.Pass()] if name == "body" else [])
    if isinstance(head, ast.Try):
        return "try"
    return " ".join(ast.unparse(ast.fix_missing_locations(head)).removesuffix("pass").split())
