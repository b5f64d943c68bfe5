#!/usr/bin/env python3
"""Fail where an import of the Python package points upward, or makes ``import kvpool`` heavy.

Usage: tools/check_imports.py [ROOT]

Only imports that run when a module is loaded count: those inside a function, and those under
``if TYPE_CHECKING``, are how a module reaches what may be missing or heavy.

1. Loading a module of ``LIGHT`` loads nothing but the standard library and kvpool's own modules.
2. A subpackage imports only the subpackages that ``BELOW`` allows it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LIGHT = ("kvpool", "kvpool.memory", "kvpool.cli")

# What each subpackage may import of the others. Modules right under kvpool may be used by all.
BELOW: dict[str, tuple[str, ...]] = {
    "cache": (),
    "memory": ("cache",),
    "mlx": ("cache", "memory"),
    "models": (),
    "report": (),
    "compat": ("cache", "memory", "mlx"),
    "cli": ("cache", "memory", "mlx", "models", "report", "compat"),
}


def is_type_checking(test: ast.expr) -> bool:
    """Tell whether a condition is ``TYPE_CHECKING`` or ``typing.TYPE_CHECKING``."""
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def load_time_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run when a module with this body is loaded."""
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        elif isinstance(statement, ast.If) and is_type_checking(statement.test):
            yield from load_time_imports(statement.orelse)
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from load_time_imports(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from load_time_imports(handler.body)


class Package:
    """The modules of python/kvpool and what each imports when it is loaded."""

    def __init__(self, root: Path) -> None:
        self.paths: dict[str, Path] = {}
        for path in sorted((root / "python").rglob("*.py")):
            parts = path.relative_to(root / "python").with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.paths[name] = path
        self.imports = {name: list(self._imports_of(name)) for name in self.paths}

    def _imports_of(self, module: str) -> Iterator[tuple[int, str]]:
        path = self.paths[module]
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for statement in load_time_imports(ast.parse(path.read_text("utf-8")).body):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    yield statement.lineno, alias.name
                continue
            base = statement.module or ""
            if statement.level:
                anchor = package.split(".")[: len(package.split(".")) - statement.level + 1]
                base = ".".join([*anchor, base] if base else anchor)
            for alias in statement.names:
                submodule = f"{base}.{alias.name}"
                yield statement.lineno, submodule if submodule in self.paths else base

    def loaded_by(self, module: str) -> dict[str, list[str]]:
        """Return each module that loading this one loads, with the chain that leads to it."""
        chains: dict[str, list[str]] = {}
        pending = [(module, [module])]
        while pending:
            name, chain = pending.pop()
            if name in chains:
                continue
            chains[name] = chain
            parent = name.rpartition(".")[0]
            if parent and name.startswith("kvpool."):
                pending.append((parent, [*chain, parent]))
            for _, imported in self.imports.get(name, []):
                pending.append((imported, [*chain, imported]))
        return chains


def check_light(package: Package) -> Iterator[str]:
    """Yield a line for each foreign module that a light module loads."""
    for module in LIGHT:
        if module not in package.paths:
            continue
        for name, chain in package.loaded_by(module).items():
            top = name.partition(".")[0]
            if top != "kvpool" and top not in sys.stdlib_module_names:
                yield f"loading {module} loads {name}: {' -> '.join(chain)}"


def check_arrows(package: Package, root: Path) -> Iterator[str]:
    """Yield a line for each import of a subpackage that may not be used there."""
    for module, imports in package.imports.items():
        parts = module.split(".")
        layer = parts[1] if len(parts) > 1 else ""
        is_package = len(parts) > 2 or package.paths[module].name == "__init__.py"
        if not layer or not is_package:
            continue
        if layer not in BELOW:
            yield f"kvpool.{layer} is no subpackage that tools/check_imports.py knows"
            continue
        for line, imported in imports:
            root_name, _, rest = imported.partition(".")
            target = rest.partition(".")[0]
            if root_name != "kvpool" or target not in BELOW or target == layer:
                continue
            if target not in BELOW[layer]:
                allowed = ", ".join(BELOW[layer]) or "none of the others"
                where = package.paths[module].relative_to(root)
                yield f"{where}:{line}: {layer} must not import {imported}; it may use {allowed}"


def main(argv: list[str]) -> int:
    """Check the tree at argv[1], by default this one."""
    root = Path(argv[1] if len(argv) > 1 else Path(__file__).parents[1]).resolve()
    package = Package(root)
    problems = [*check_light(package), *check_arrows(package, root)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
