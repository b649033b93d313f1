"""How modules import each other: without cycles, and not by names known at run time only."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
PACKAGE = "heedful"
# The front door imports public names when they are first used; the registry imports plug-ins.
# Studies are found by file name in their own room.
DYNAMIC = {"heedful": 1, "heedful.serving": 1, "heedful.studies.catalogue": 1}


Nodes = list[ast.Import | ast.ImportFrom | ast.Call | ast.Attribute]
"""What the tests look at, of a syntax tree: to walk through all of it takes a second."""


def _modules() -> dict[str, Nodes]:
    found: dict[str, Nodes] = {}
    for file in sorted((SOURCE / PACKAGE).rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = [
            node
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Call | ast.Attribute)
        ]
    return found


def _imports(nodes: Nodes, modules: dict[str, Nodes]) -> set[str]:
    """The modules that a module imports, at its head, in functions and for type checkers."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in modules else node.module)
    return found & modules.keys()


def _cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of modules that import one another, by removing what nothing left imports."""
    left = {name: set(targets) - {name} for name, targets in edges.items()}
    changed = True
    while changed:
        changed = False
        imported = set().union(*left.values())
        for name in list(left):
            if not left[name] & left.keys() or name not in imported:
                del left[name]
                changed = True
        left = {name: targets & left.keys() for name, targets in left.items()}
    return [sorted(left)] if left else []


@pytest.fixture(scope="module")
def modules() -> dict[str, Nodes]:
    """The imports, calls and attributes of each module of the package."""
    return _modules()


def test_no_modules_import_each_other(modules: dict[str, Nodes]) -> None:
    edges = {name: _imports(nodes, modules) for name, nodes in modules.items()}
    assert edges["heedful.tasks.spec"]
    assert _cycles(edges) == []


def test_cycles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert _cycles(edges) == [["b", "c"]]


def test_own_modules_are_not_imported_by_strings(modules: dict[str, Nodes]) -> None:
    found: dict[str, int] = {}
    for name, nodes in modules.items():
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            if function.rpartition(".")[2] not in ("import_module", "__import__"):
                continue
            text = ast.unparse(node.args[0])
            if "heedful" in text or not isinstance(node.args[0], ast.Constant):
                found[name] = found.get(name, 0) + 1
    assert found == DYNAMIC


def test_only_kernels_know_compiled_code(modules: dict[str, Nodes]) -> None:
    """ctypes, Triton, the compiler and loaded libraries; the names by which they are known."""
    known = {"ctypes", "triton"}
    inside = {"heedful.kernels.compiling", "heedful.kernels.registry"}
    found = []
    for name, nodes in modules.items():
        if name.startswith("heedful.kernels"):
            continue
        for node in nodes:
            if isinstance(node, ast.Import):
                found += [(name, one.name) for one in node.names if one.name.split(".")[0] in known]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {alias.name for alias in node.names}
                if node.module.split(".")[0] in known or node.module in inside:
                    found.append((name, node.module))
                if node.module.startswith("heedful.kernels") and names & {"library", "compiling"}:
                    found.append((name, node.module))
            elif isinstance(node, ast.Attribute) and node.attr == "CDLL":
                found.append((name, node.attr))
    assert found == []


CONDITIONS = ("can_", "has_", "loops_")


def _conditions(nodes: Nodes) -> set[str]:
    """Conditions of compiled code that a module imports."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heedful.kernels"):
            found |= {
                one.name for one in node.names if one.name.startswith(("can_", "has_", "loops_"))
            }
    return found


def test_models_do_not_ask_what_is_compiled(modules: dict[str, Nodes]) -> None:
    """Operations and the pass over modules decide."""
    rooms = ("attention", "layers", "models", "tasks")
    asked = {name: _conditions(nodes) for name, nodes in modules.items()}
    assert asked["heedful.inference.fusing.cached"] == {"can_step"}
    assert not {
        name: found for name, found in asked.items() if found and name.split(".")[1:2][0] in rooms
    }


def test_kernels_know_tensors_and_no_modules(modules: dict[str, Nodes]) -> None:
    for name, nodes in modules.items():
        if name.startswith("heedful.kernels"):
            taken = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
            assert not {"nn.Module", "torch.nn.Module"} & taken, name
