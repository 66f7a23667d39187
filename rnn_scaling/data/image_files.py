"""The files of images in a folder."""

from pathlib import Path

from rnn_scaling.data.corpus import DataError
from rnn_scaling.settings.run_options import DataOptions


def files(options: DataOptions) -> list[str]:
    """The files to train on, in the order of their names. Raises DataError if there is none."""
    folder, pattern = options.data_dir, options.file_pattern
    try:
        paths = sorted(str(path) for path in Path(folder).iterdir() if path.match(pattern))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{folder or '(no name)'}: {reason}; expected --data_dir to name a folder") from None
    if not paths:
        raise DataError(f"{folder}: no {pattern}; expected the files of --data_source={options.data_source}")
    return paths
