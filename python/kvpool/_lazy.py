"""Names that are loaded on first use, so that importing kvpool stays cheap."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_NEEDS_MLX = frozenset({"mlx", "mlx.core", "mlx_lm"})


def load_name(package: str, name: str, lazy: Mapping[str, str]) -> Any:
    """The object that a package's ``__getattr__`` was asked for.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    name : str
        The attribute wanted.
    lazy : mapping of str to str
        The module that each lazily loaded name is in.

    Raises
    ------
    AttributeError
        If the package has no such name.
    ImportError
        If the name needs MLX or mlx_lm and that is not installed; says what to install.
    """
    module = lazy.get(name)
    if module is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in _NEEDS_MLX:
            raise
        raise ImportError(
            f"{package}.{name} needs {error.name}, which is not installed. "
            "Install it with: pip install 'kvpool[mlx]'"
        ) from error
