"""Measure how --compress_gradients affects learning, from the same weights and batches.

    python -m benchmarks.compressed_learning [--seeds=3] [--batches=400]
        [trainer flags ...]

Two towers train on text in one process with `replicated`; several workers compute the
same sums. "int8, forgetful" has no error feedback. Prints the mean loss of the last fifth
of the batches, and the difference from float32 for each seed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import make_corpus
from rnn_scaling.records import record
from rnn_scaling.system.files.markdown import format_table

FORGETFUL = "int8, forgetful"
KINDS = ("none", "bfloat16", "float16", "int8", FORGETFUL)
NUM_PAIRS = 4000
NUM_WORDS = 500
MODEL = (
    "--model=lm",
    "--num_encoder_layers=1",
    "--num_units=64",
    "--embedding_dim=64",
    "--optimizer=sgd",
    "--learning_rate=1",
    "--batch_size=16",
    "--tgt_max_len=20",
    "--num_warmup_batches=1",
    "--progress=false",
    "--variable_update=replicated",
    "--num_devices=2",
    "--data_source=text",
    f"--tgt_vocab_size={NUM_WORDS}",
)
# A trainer that forgets what rounding to int8 lost.
FORGETFUL_TRAINER = """
import sys
from rnn_scaling.training import compression
pack = compression.pack_rows
compression._pack = lambda gradient, lost: pack(compression.tf.reshape(gradient, [1, -1]))
from rnn_scaling.system import entry
from rnn_scaling import train
entry.leave(lambda: train.main(sys.argv[1:]), at_once=True)
"""


def main() -> None:
    """Train with each kind of gradients and seed, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument(
        "--batches",
        type=int,
        default=400,
        help="number of batches to train with each seed",
    )
    options, trainer_flags = parser.parse_known_args()
    losses: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in make_corpus.make(NUM_PAIRS, NUM_WORDS, 1).items():
            (folder / file).write_bytes(content)
        common = [
            *MODEL,
            f"--tgt_file_name={folder}/train.tgt",
            f"--tgt_vocab_file={folder}/vocab.tgt",
            f"--num_batches={options.batches}",
            *trainer_flags,
        ]
        for kind in KINDS:
            for seed in range(1, options.seeds + 1):
                words = [*common, f"--seed={seed}"]
                losses[kind].append(train(kind, words, folder / "run.json"))
    rows = []
    for kind in KINDS:
        differences = []
        for loss, uncompressed in zip(losses[kind], losses["none"]):
            differences.append(f"{loss - uncompressed:+.4f}")
        mean = f"{statistics.mean(losses[kind]):.4f}"
        rows.append([kind, mean, ", ".join(differences)])
    head = ["gradients", "loss", "difference from none, by seed"]
    print(format_table(head, rows), end="")


def train(kind: str, trainer_flags: Sequence[str], result_file: Path) -> float:
    """Train, and return the mean loss of the last fifth of the batches.

    Args:
      kind: One of KINDS.
      trainer_flags: Further flags.
      result_file: File of the record.
    """
    trainer = ["-m", "rnn_scaling.train"]
    if kind == FORGETFUL:
        trainer = ["-c", FORGETFUL_TRAINER]
    words = [
        sys.executable,
        *trainer,
        f"--compress_gradients={kind.split(',')[0]}",
        f"--result_file={result_file}",
        *trainer_flags,
    ]
    subprocess.run(
        words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    losses = []
    for loss in record.read(result_file).batches.loss:
        if loss is not None:
            losses.append(loss)
    return statistics.mean(losses[-len(losses) // 5 :])


if __name__ == "__main__":
    main()
