"""Names of files that are taken already, by something that is not the suite's."""

from __future__ import annotations

import os

KINDS = ("symbolic link", "dangling link", "hard link", "pipe", "folder")


def put(kind, path, precious):
    """Makes `path` the name of something that is not the suite's."""
    precious.write_text("mine\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "symbolic link":
        path.symlink_to(precious)
    elif kind == "dangling link":
        path.symlink_to(precious.with_name("nowhere"))
    elif kind == "hard link":
        os.link(precious, path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
