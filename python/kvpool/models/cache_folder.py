"""The user's cache folder, under which converted models are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder(override: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for files that can be made again.

    The first of these that is set: `override`; ``KVPOOL_CACHE_DIR``; ``XDG_CACHE_HOME``, if
    absolute as its specification asks; ``~/Library/Caches`` on macOS and ``~/.cache``
    elsewhere. An empty variable counts as unset. The folder need not exist.

    Parameters
    ----------
    override
        A folder of the caller's choice; ``~`` is expanded and a relative path is taken from
        the working directory, as in ``KVPOOL_CACHE_DIR``.

    Returns
    -------
    pathlib.Path
        An absolute path.
    """
    chosen = override or os.environ.get("KVPOOL_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
