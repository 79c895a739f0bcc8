"""Errors of files: Python's own classes, with ``errno`` and ``filename``, whose text is the message alone."""

from __future__ import annotations

import errno
import functools
import os
from typing import Any


def file_error(
    message: str, path: str | os.PathLike[str] | None, number: int = errno.ENOENT, kind: type[OSError] = OSError
) -> OSError:
    """Make an error of a file.

    Args:
        message: the whole text. Python's own would be the system's words and the path; ours says more.
        path: the file's, None if it is not known.
        number: the system's number of the error. As everywhere in Python it chooses the class: a FileNotFoundError
            for ENOENT, a PermissionError for EACCES. 0 if there is none.
        kind: the class. OSError stands for the one that the number chooses.

    Returns:
        The error, to be raised.
    """
    if kind is OSError:
        kind = type(OSError(number, message))
    return _named(kind)(number or None, message, None if path is None else os.fspath(path))


@functools.cache
def _named(kind: type[OSError]) -> type[OSError]:
    """The class ``kind`` with another text. It passes for ``kind`` in tracebacks and when it is pickled."""

    def text(self: OSError) -> str:
        return str(self.strerror)

    def reduce(self: OSError) -> Any:
        return file_error, (self.strerror, self.filename, self.errno or 0, kind)

    names = {"__str__": text, "__reduce__": reduce, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), names)
