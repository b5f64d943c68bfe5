"""What a command tells a person instead of a traceback."""

from __future__ import annotations


class CommandError(Exception):
    """A command can't go on, for a reason that one or two sentences say in full.

    Parameters
    ----------
    message : str
        What is wrong, and what to do about it.
    exit_code : int
        2 where the command line is at fault, else 1.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def usage_error(message: str) -> CommandError:
    """Return the error for a command line that asks for what can't be."""
    return CommandError(message, exit_code=2)
