#!/usr/bin/env python3
"""Fail where an ``#include``, or a layer's CMake dependency, points upward through the layers.

Usage: tools/check_layers.py [ROOT]

A layer is a pair of folders, include/kvpool/<layer> and src/<layer>; its tests lie in
tests/<layer>. A file may include its own layer and the layers below it. Headers in src/ are
private to their layer. The arrows are those of ``BELOW``: a new layer is added there first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The layers right below each one; what lies below those is allowed too.
BELOW: dict[str, tuple[str, ...]] = {
    "base": (),
    "pool": ("base",),
    "codec": ("base",),
    "store": ("pool", "codec"),
    "attention": ("codec",),
    "prefix": ("base",),
    "tier": ("codec",),
    "cache": ("store", "attention", "prefix", "tier"),
    "mlx": ("cache",),
    "python": ("mlx",),
}

# Headers of other projects that only some layers may know.
EXTERNAL: dict[str, tuple[str, ...]] = {
    "mlx/": ("mlx",),
    "nanobind/": ("mlx", "python"),
    "Python.h": ("mlx", "python"),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
ADD_LAYER = re.compile(r"kvpool_add_layer\(\s*(\w+)([^)]*)\)")


def reachable(layer: str) -> set[str]:
    """Return the layer itself and all layers below it."""
    found = {layer}
    for lower in BELOW[layer]:
        found |= reachable(lower)
    return found


def layer_of(path: Path) -> str | None:
    """Return the layer of a path relative to the root, or None where it belongs to none."""
    parts = path.parts
    if parts[:2] == ("include", "kvpool") and len(parts) > 3:
        return parts[2]
    if parts[0] in ("src", "tests") and len(parts) > 2:
        return parts[1]
    return None


def resolve(root: Path, source: Path, name: str, quoted: bool) -> Path | None:
    """Return the project's file that an include names, relative to the root."""
    folders = ([source.parent] if quoted else []) + [Path("include"), Path("src")]
    for folder in folders:
        candidate = (root / folder / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root)
    return None


def may_use(layer: str) -> str:
    """Return the end of a message: what the layer may use."""
    lower = sorted(reachable(layer) - {layer})
    return f"{layer} may use {', '.join(lower)}" if lower else f"{layer} has no layer below it"


def include_problem(root: Path, source: Path, name: str, quoted: bool) -> str | None:
    """Return what is wrong with one include of a file of a layer, or None."""
    layer = layer_of(source)
    if layer is None:
        return None
    for prefix, layers in EXTERNAL.items():
        if name.startswith(prefix) and layer not in layers:
            return f"{layer} must not include {name}: only {' and '.join(layers)} may"
    target = resolve(root, source, name, quoted)
    if target is None:
        missing = name.startswith("kvpool/")
        return f"{name} is no file of this project" if missing else None
    target_layer = layer_of(target)
    if target_layer is None or target_layer not in BELOW:
        return f"{target} belongs to no layer that tools/check_layers.py knows"
    if target.parts[0] == "src" and target_layer != layer:
        return f"{layer} must not include {target}: it is private to {target_layer}"
    if target_layer not in reachable(layer):
        return f"{layer} must not include {target}: {may_use(layer)}"
    return None


def check_includes(root: Path) -> Iterator[str]:
    """Yield a line for each include that breaks the layering."""
    folders = ["include/kvpool", "src", *(f"tests/{layer}" for layer in BELOW)]
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            source = path.relative_to(root)
            layer = layer_of(source)
            if layer not in BELOW:
                yield f"{source}:1: belongs to no layer that tools/check_layers.py knows"
                continue
            for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
                match = INCLUDE.match(line)
                if match is None:
                    continue
                problem = include_problem(root, source, match[2], quoted=match[1] == '"')
                if problem is not None:
                    yield f"{source}:{number}: {problem}"


def check_cmake(root: Path) -> Iterator[str]:
    """Yield a line for each ``kvpool_add_layer`` whose DEPS are not below it."""
    for path in sorted(root.glob("src/*/CMakeLists.txt")):
        source = path.relative_to(root)
        for name, arguments in ADD_LAYER.findall(path.read_text("utf-8")):
            if name not in BELOW:
                yield f"{source}: {name} is no layer that tools/check_layers.py knows"
                continue
            dependencies = re.search(r"DEPS\s+([a-z_\s]+)", arguments)
            for dependency in dependencies[1].split() if dependencies else ():
                if dependency not in reachable(name) - {name}:
                    yield f"{source}: {name} must not link {dependency}: {may_use(name)}"


def main(argv: list[str]) -> int:
    """Check the tree at argv[1], by default this one."""
    root = Path(argv[1] if len(argv) > 1 else Path(__file__).parents[1]).resolve()
    problems = [*check_includes(root), *check_cmake(root)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
