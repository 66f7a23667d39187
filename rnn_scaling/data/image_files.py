"""The files of images in a folder; their pattern is that of the data source in `registry.DATA_SOURCES`."""

from __future__ import annotations

from pathlib import Path

from rnn_scaling import registry
from rnn_scaling.data.corpus import DataError
from rnn_scaling.settings.run_options import DataOptions


def files(options: DataOptions) -> list[str]:
    """The files to train on, in the order of their names.

    Raises:
      DataError: if there is none.
    """
    folder, source = options.data_dir, registry.DATA_SOURCES[options.data_source]
    try:
        paths = sorted(str(path) for path in Path(folder).iterdir() if path.match(source.files))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{folder or '(no name)'}: {reason}; expected --data_dir to name a folder") from None
    if not paths:
        raise DataError(f"{folder}: no {source.files}; expected {source.help}")
    return paths
