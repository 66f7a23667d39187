"""python -m rnn_scaling make_tfrecords: a small set of images in ImageNet's form, for --data_source=tfrecord."""

import dataclasses
from collections.abc import Sequence

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry
from rnn_scaling.training.native_log import NativeLog

USAGE = """\
Makes a small set of JPEGs in ImageNet's TFRecord format, to try --data_source=tfrecord. Each image is a coloured
pattern with noise. The same flags make the same images.

    ./run.sh make_tfrecords --out=images
    ./run.sh train --model=alexnet --data_source=tfrecord --data_dir=images

Exit status: 0 done, 1 a file could not be written, 2 wrong use."""


@dataclasses.dataclass(frozen=True)
class Images:
    """Images."""

    out: str = option("images", "folder of the files")
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
    made = flags.read(words, USAGE, Images, "make_tfrecords")
    if made.files > made.images:
        raise entry.Refusal(
            f"--files={made.files} must be at most --images={made.images}; lower it"
        )
    NativeLog()
    from rnn_scaling.data import make_tfrecords  # loads TensorFlow

    try:
        make_tfrecords.write(
            made.out, made.images, made.files, made.classes, made.width, made.seed
        )
    except OSError as e:
        return entry.fail(f"--out={made.out}: {e.strerror or e}; name another folder")
    entry.note(
        f"{made.images} images in {made.files} files; train on them with --data_dir={made.out}"
    )
    return entry.EXIT_OK
