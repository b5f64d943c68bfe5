"""What can be wrong with a model: its package is not there, or its file is another kind."""

from __future__ import annotations


class ModelPackageError(ImportError):
    """A package that brings a model, or is needed to read one, is missing or damaged.

    The message names the command that installs it.
    """


class ModelFormatError(ValueError):
    """A model file does not say or hold what the conversion relies on.

    The message shows what was found and what is expected.
    """
