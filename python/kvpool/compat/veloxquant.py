"""Importing this module makes ``veloxquant_mlx`` and its memory modules resolve to kvpool.

That holds for this process: one started by it (multiprocessing's "spawn") imports it for itself.

Raises
------
ImportError
    If the real veloxquant_mlx has been imported already: objects of the two must not mix.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import kvpool

_CACHE_NAMES = {"KVCache": "kvpool"}
_POOL_NAMES = dict.fromkeys(
    [
        "AllocationStats",
        "Block",
        "BlockPoolAllocator",
        "DEFAULT_BLOCK_SIZE",
        "DEFAULT_HISTORY_SIZE",
        "PoolConfig",
    ],
    "kvpool.memory",
)
_ERROR_NAMES = dict.fromkeys(
    ["BlockPoolExhaustedError", "OwnerAlreadyActiveError"], "kvpool.memory"
)
_STORAGE_NAMES = {"MLXBlockStorage": "kvpool.memory"}
_BACKED_NAMES = dict.fromkeys(["PoolBackedKVCache", "build_pooled_caches"], "kvpool.memory")
_POOLED_NAMES = {"PooledKVCache": "kvpool.memory"}

# Module → its names → where each comes from.
_MODULES: dict[str, dict[str, str]] = {
    "veloxquant_mlx": _CACHE_NAMES,
    "veloxquant_mlx.core": {},
    "veloxquant_mlx.core.exceptions": _ERROR_NAMES,
    "veloxquant_mlx.memory": {
        **_POOL_NAMES,
        **_ERROR_NAMES,
        **_STORAGE_NAMES,
        **_BACKED_NAMES,
        **_POOLED_NAMES,
    },
    "veloxquant_mlx.memory.block_pool": {**_POOL_NAMES, **_ERROR_NAMES},
    "veloxquant_mlx.memory.mlx_storage": _STORAGE_NAMES,
    "veloxquant_mlx.memory.pool_backed_cache": _BACKED_NAMES,
    "veloxquant_mlx.memory.pooled_cache": _POOLED_NAMES,
}


class StandIn(ModuleType):
    """A module whose names are kvpool's, each loaded when it is first asked for."""

    def __init__(self, name: str, sources: dict[str, str]) -> None:
        super().__init__(name, f"{name}, served by kvpool.")
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, loader=None, origin=__name__, is_package=True)
        self.__version__ = kvpool.__version__
        self.__all__ = sorted(sources)
        self._sources = sources

    def __getattr__(self, name: str) -> Any:
        if name not in self._sources:
            provided = ", ".join(self.__all__) or "nothing"
            raise AttributeError(
                f"kvpool {kvpool.__version__} does not provide {self.__name__}.{name}; "
                f"of that module it provides {provided}"
            )
        return getattr(importlib.import_module(self._sources[name]), name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__all__]


def install() -> None:
    """Put the stand-ins in place. Doing so again changes nothing.

    Raises
    ------
    ImportError
        If the real veloxquant_mlx has been imported already.
    """
    present = sys.modules.get("veloxquant_mlx")
    if isinstance(present, StandIn):
        return
    if present is not None:
        raise ImportError(
            "veloxquant_mlx itself has been imported already; import kvpool.compat.veloxquant first"
        )
    for name, sources in _MODULES.items():
        module = StandIn(name, sources)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


install()
