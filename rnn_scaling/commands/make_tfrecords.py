"""python -m rnn_scaling make_tfrecords: a small set of images in ImageNet's form.

It only reads flags; `data.make_tfrecords` writes the files.
"""

import dataclasses
from collections.abc import Sequence

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry
from rnn_scaling.training.native_log import NativeLog

_USAGE = """\
Makes a small set of JPEGs in ImageNet's TFRecord format, to try --data_source=tfrecord.
Each image is a coloured pattern with noise. The same flags make the same images.

    ./run.sh make_tfrecords --out=images
    ./run.sh train --model=alexnet --data_source=tfrecord --data_dir=images

Exit status: 0 done; 1 a file could not be written; 2 wrong use."""


@dataclasses.dataclass(frozen=True)
class ImageOptions:
    """Images."""

    out: str = option("images", "folder for the files")
    images: int = option(200, "number of images in all files", minimum=1)
    files: int = option(4, "number of files, at most --images", minimum=1)
    classes: int = option(10, "number of classes", minimum=1, maximum=1000)
    width: int = option(
        500,
        "width of an image in pixels; the height is three quarters of it",
        minimum=8,
    )
    seed: int = option(1, "seed of the random pixels", minimum=0)


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = flags.read(words, _USAGE, ImageOptions, "make_tfrecords")
    if options.files > options.images:
        raise entry.Refusal(
            f"--files={options.files} must be at most --images={options.images}; lower "
            "it"
        )
    NativeLog()
    from rnn_scaling.data import make_tfrecords  # loads TensorFlow

    try:
        make_tfrecords.write(
            options.out,
            num_images=options.images,
            num_files=options.files,
            num_classes=options.classes,
            width=options.width,
            seed=options.seed,
        )
    except OSError as e:
        return entry.fail(
            f"--out={options.out}: {e.strerror or e}; name another folder"
        )
    entry.note(
        f"{options.images} images in {options.files} files; train on them with "
        f"--data_dir={options.out}"
    )
    return entry.EXIT_OK
