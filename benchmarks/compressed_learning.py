"""Measures how --compress_gradients affects learning: losses on text from the same weights and batches.

    python -m benchmarks.compressed_learning [--seeds=3] [--batches=400] [trainer flags ...]

Two towers run in one process with `replicated`; several workers compute the same sums. "int8, forgetful" has no error
feedback. Prints the mean loss of the last fifth of the batches, and the difference from float32 for each seed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import make_corpus
from rnn_scaling.records import record
from rnn_scaling.system.files.markdown import format_table

FORGETFUL = "int8, forgetful"
KINDS = ("none", "bfloat16", "float16", "int8", FORGETFUL)
WORDS = 500
MODEL = (
    *(
        "--model=lm",
        "--num_encoder_layers=1",
        "--num_units=64",
        "--embedding_dim=64",
        "--optimizer=sgd",
    ),
    *(
        "--learning_rate=1",
        "--batch_size=16",
        "--tgt_max_len=20",
        "--num_warmup_batches=1",
        "--progress=false",
    ),
    *(
        "--variable_update=replicated",
        "--num_devices=2",
        "--data_source=text",
        f"--tgt_vocab_size={WORDS}",
    ),
)
# The trainer, which forgets what quantising lost.
WITHOUT_FEEDBACK = """
import sys
from rnn_scaling.training import compression
pack = compression.pack_rows
compression._pack = lambda gradient, lost: pack(compression.tf.reshape(gradient, [1, -1]))
from rnn_scaling.system import entry
from rnn_scaling import train
entry.leave(lambda: train.main(sys.argv[1:]), at_once=True)
"""


def main() -> None:
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
    own, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in make_corpus.make(4000, WORDS, 1).items():
            (folder / file).write_bytes(content)
        text = [
            f"--tgt_file_name={folder}/train.tgt",
            f"--tgt_vocab_file={folder}/vocab.tgt",
        ]
        common = [*MODEL, *text, f"--num_batches={own.batches}", *flags]
        seeds = range(1, own.seeds + 1)
        losses = {
            kind: [
                _loss(kind, [*common, f"--seed={seed}"], folder / "run.json")
                for seed in seeds
            ]
            for kind in KINDS
        }
    rows = []
    for kind, of_seeds in losses.items():
        differences = [loss - whole for loss, whole in zip(of_seeds, losses["none"])]
        rows.append(
            [
                kind,
                f"{statistics.mean(of_seeds):.4f}",
                ", ".join(f"{each:+.4f}" for each in differences),
            ]
        )
    print(
        format_table(["gradients", "loss", "difference from none, by seed"], rows),
        end="",
    )


def _loss(kind: str, flags: list[str], result_file: Path) -> float:
    trainer = (
        ["-c", WITHOUT_FEEDBACK] if kind == FORGETFUL else ["-m", "rnn_scaling.train"]
    )
    words = [
        f"--compress_gradients={kind.split(',')[0]}",
        f"--result_file={result_file}",
        *flags,
    ]
    subprocess.run(
        [sys.executable, *trainer, *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    losses = [
        loss for loss in record.read(result_file).batches.loss if loss is not None
    ]
    return statistics.mean(losses[-len(losses) // 5 :])


if __name__ == "__main__":
    main()
