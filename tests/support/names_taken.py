"""Output paths at which a file of the user already exists."""

import os

KINDS = ("symbolic link", "dangling link", "hard link", "pipe", "folder")


def put(kind, path, precious):
    """Create an object of this kind at `path` that belongs to the user."""
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
