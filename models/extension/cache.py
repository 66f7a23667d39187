"""Libraries that this user has built, kept so that another checkout need not build them.

A library's name has the digest of its sources, its TensorFlow and its instruction set,
and its seal (library.py) shows whether the copy is complete.

Only `build` uses the cache. It may be deleted at any time.
"""

import contextlib
import os
import shutil
from pathlib import Path

from rnn_scaling.models.extension import library

MAX_LIBRARIES = 8


def find_folder() -> Path | None:
    """Return the folder of kept libraries, or None if this user has no home."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if configured.startswith("/"):
        return Path(configured) / "rnn_scaling" / "kernels"
    try:
        return Path.home() / ".cache" / "rnn_scaling" / "kernels"
    except RuntimeError:
        return None


def copy_to(file: Path) -> bool:
    """Copy a kept library and the results of its tests to `file`.

    Returns:
      False if there is no intact library of this name, or it cannot be copied.
    """
    kept_in = find_folder()
    if kept_in is None:
        return False
    try:
        library.identify(kept_in / file.name)
        _copy(kept_in / file.name, file)
        library.identify(file)
    except (library.DamageError, OSError):
        return False
    return True


def keep(file: Path) -> None:
    """Keep a tested library, unless this user has no folder that can be written."""
    kept_in = find_folder()
    if kept_in is None:
        return
    with contextlib.suppress(OSError):
        kept_in.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy(file, kept_in / file.name)
        _remove_oldest(kept_in)


def _copy(source: Path, target: Path) -> None:
    for result in source.parent.glob(f"{source.name}.*.tested"):
        with library.open_replacement(target.with_name(result.name)) as new:
            shutil.copyfile(result, new)
    with library.open_replacement(target) as new:
        shutil.copyfile(source, new)


def _remove_oldest(kept_in: Path) -> None:
    libraries = sorted(
        kept_in.glob("kernels-*.so"), key=lambda path: path.stat().st_mtime
    )
    for old in libraries[:-MAX_LIBRARIES]:
        for path in kept_in.glob(f"{old.name}*"):
            path.unlink(missing_ok=True)
