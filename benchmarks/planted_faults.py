"""Count the faults planted in the trainer that `verify` finds and names.

    python -m benchmarks.planted_faults              every fault, then right combinations
    python -m benchmarks.planted_faults ring adam    faults with such a word in the name
    python -m benchmarks.planted_faults right        only the right combinations

A fault is a piece of a file's text, its replacement, the flags that run it, and the
cause that the certificate must name. Each fault is verified in a process forked from one
that has loaded TensorFlow but no module of this project. The status is 1 if a right
combination is called wrong.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.machinery
import io
import itertools
import json
import multiprocessing
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.fault_table import (
    ADAM,
    ATTENTION,
    BAHDANAU,
    CLIP,
    DECAY,
    FAULTS,
    INDEPENDENT,
    INT8,
    MOMENTUM,
    PIECEWISE,
    RAMP,
    REPEATED,
    RMSPROP,
    SERVER,
    SGD,
    SIZES,
    THREE,
    Fault,
)

Flags = tuple[str, ...]

TIME_LIMIT_S = 300
# The option that makes a process one rank of a run with a fault.
RANK_OPTION = "--rank"

REPLICATED: Flags = ("--variable_update=replicated",)
RELAXED: Flags = ("--variable_consistency=relaxed",)
TWO_WORKERS: Flags = ("--num_workers=2", "--variable_update=collective_all_reduce")
FLOAT16: Flags = ("--compress_gradients=float16",)
BFLOAT16: Flags = ("--compress_gradients=bfloat16",)
DENSIFIED: Flags = ("--sparse_gradients=densify",)
LANGUAGE_MODEL: Flags = ("--model=lm",)
COPY: Flags = ("--data_source=copy",)
IMAGES: Flags = ("--model=resnet20",)
TRANSFORMER: Flags = ("--model=transformer",)

# In a row, every choice of the first column is combined with every choice of the others.
RIGHT_PRODUCTS: tuple[tuple[tuple[Flags, ...], ...], ...] = (
    ((SGD, MOMENTUM, ADAM), (REPLICATED, SERVER, INDEPENDENT), ((), CLIP)),
    ((SGD, MOMENTUM), (FLOAT16, BFLOAT16, INT8)),
    ((("--unit_type=gru",), ("--unit_type=nas",), ("--unit_type=layer_norm_lstm",)),),
    ((LANGUAGE_MODEL, ATTENTION, BAHDANAU), (SGD, ADAM)),
    ((DECAY, PIECEWISE, REPEATED), (SGD, RMSPROP, ADAM)),
)
RIGHT_COMBINATIONS: tuple[Flags, ...] = (
    ("--all_reduce_spec=xring",),
    ("--all_reduce_spec=hierarchical",),
    ("--gradient_repacking=3",),
    RAMP + SGD,
    RAMP + MOMENTUM,
    THREE + INT8,
    (*THREE, "--global_batch_size=17"),
    ("--dropout=0.3",),
    RELAXED,
    RELAXED + INT8,
    (*SERVER, "--staged_vars=true"),
    ("--variable_update=mirrored",),
    ("--variable_update=keras_slicing",),
    ("--compute_dtype=bfloat16",),
    DENSIFIED + INT8,
    FLOAT16 + DENSIFIED,
    COPY,
    ("--data_source=constant",),
    ("--data_source=host",),
    ("--time_major=false",),
    TWO_WORKERS + FLOAT16,
    TWO_WORKERS + INT8,
    (*IMAGES, "--batch_size=4", "--num_batches=3"),
)

# Sizes that these flags ignore or refuse, so that they are not given.
SIZES_TO_LEAVE_OUT = {
    LANGUAGE_MODEL[0]: {
        "src_vocab_size",
        "src_max_len",
        "num_decoder_layers",
        "direction",
    },
    TRANSFORMER[0]: {"num_units", "embedding_dim", "src_vocab_size", "direction"},
    COPY[0]: {"src_max_len"},
}


@dataclasses.dataclass(frozen=True)
class Answer:
    """What `verify` says about a combination of flags.

    Attributes:
      verdict: The certificate's verdict; empty if there is no certificate.
      holds: Whether the certificate holds; None if it cannot tell.
      sentence: The certificate in a sentence, or why there is none.
    """

    verdict: str
    holds: bool | None
    sentence: str

    def finds_fault(self) -> bool:
        """Return whether the training is called wrong."""
        return self.holds is False and self.verdict != "cannot tell"

    def names_fault(self, fault: Fault) -> bool:
        """Return whether the certificate names the cause of a fault."""
        is_named = re.search(fault.cause, self.sentence, re.IGNORECASE) is not None
        return self.finds_fault() and is_named


def list_right_combinations() -> list[Flags]:
    """Return the flags of all combinations without a fault."""
    combinations = list(RIGHT_COMBINATIONS)
    for columns in RIGHT_PRODUCTS:
        for choices in itertools.product(*columns):
            combinations.append(tuple(itertools.chain.from_iterable(choices)))
    return combinations


def list_sizes(flags: Flags) -> list[str]:
    """Return the flags of a small network, without those that `flags` have or ignore."""
    if IMAGES[0] in flags:
        return []
    left_out = set()
    for flag in flags:
        name = flag.removeprefix("--").partition("=")[0]
        left_out.add("batch_size" if name == "global_batch_size" else name)
        left_out |= SIZES_TO_LEAVE_OUT.get(flag, set())
    sizes = []
    if COPY[0] in flags:
        # A copied sentence is as long as its source.
        sizes.append(f"--src_max_len={SIZES['tgt_max_len']}")
    for name, value in SIZES.items():
        if name not in left_out:
            sizes.append(f"--{name}={value}")
    return sizes


def plant(fault: Fault) -> None:
    """Let the module of a fault's file be compiled from other text.

    Raises:
      ValueError: When the module is imported, if the text is not in its file.
    """
    get_real_code = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        if not loader.path.endswith(f"/{fault.file}"):
            return get_real_code(loader, name)
        text = loader.get_data(loader.path).decode()
        found = fault.find_in(text)
        if found is None:
            raise ValueError(f"{fault.file} lacks {fault.old!r}")
        text = text[: found.start()] + fault.new.strip() + text[found.end() :]
        return compile(text, loader.path, "exec", dont_inherit=True)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def verify(fault: Fault | None, flags: Flags) -> Answer:
    """Verify in a forked process; return the answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer.json")
        process = multiprocessing.get_context("fork").Process(
            target=_answer, args=(fault, flags, path)
        )
        process.start()
        process.join(TIME_LIMIT_S)
        if process.is_alive():
            process.kill()
            return Answer("", None, f"it did not end within {TIME_LIMIT_S} s")
        return Answer(**json.loads(path.read_text()))


def _answer(fault: Fault | None, flags: Flags, path: Path) -> None:
    """Plant the fault in this process, verify, write the answer, and end the process."""
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    try:
        if fault is not None:
            plant(fault)
        answer = _verify_here(fault, flags, path.with_suffix(".run.json"))
    except BaseException as e:  # noqa: BLE001 - whatever it is, it is the answer
        answer = Answer("", None, repr(e)[:300])
    path.write_text(json.dumps(dataclasses.asdict(answer)))
    os._exit(0)


def _verify_here(fault: Fault | None, flags: Flags, record_path: Path) -> Answer:
    """Verify in this process.

    Args:
      fault: The fault that is planted, which other ranks must plant, too.
      flags: The flags to verify.
      record_path: File of the record.
    """
    from rnn_scaling.commands import verify
    from rnn_scaling.records import record as records
    from rnn_scaling.reports.certificates import format_certificate

    name = fault.name if fault else ""
    rank_command = (
        sys.executable,
        "-m",
        "benchmarks.planted_faults",
        RANK_OPTION,
        name,
    )
    words = [*list_sizes(flags), *flags, "--device=cpu", f"--result_file={record_path}"]
    with contextlib.redirect_stdout(io.StringIO()):
        verify.main(words, rank_command)
    record = records.read(record_path)
    certificate = record.certificate
    if certificate is None:
        return Answer("", None, str(record.error))
    return Answer(
        certificate.verdict, certificate.holds, format_certificate(certificate)
    )


def run_rank(fault_name: str, words: list[str]) -> int:
    """Run one rank of a training with a fault, or without one if the name is empty."""
    for fault in FAULTS:
        if fault.name == fault_name:
            plant(fault)
    from rnn_scaling.commands import verify

    return verify.main(words)


def count_faults(words: list[str]) -> str:
    """Print a line for each fault whose name contains a word; return the counts."""
    found = 0
    named = 0
    chosen = []
    for fault in FAULTS:
        if not words or any(word in fault.name for word in words):
            chosen.append(fault)
    for fault in chosen:
        answer = verify(fault, fault.flags)
        result = "MISSED"
        if answer.names_fault(fault):
            named += 1
            result = "named"
        elif answer.finds_fault():
            result = "found"
        found += answer.finds_fault()
        sentence = f"{answer.verdict}: {answer.sentence}".removeprefix(": ")
        print(f"{result} | {fault.name} | {sentence[:230]}", flush=True)
    return f"{found} of {len(chosen)} faults found, {named} with their cause"


def count_alarms() -> tuple[int, int]:
    """Print each right combination that is not called right.

    Returns:
      Their number, and that of all combinations.
    """
    alarms = 0
    combinations = list_right_combinations()
    for flags in combinations:
        answer = verify(None, flags)
        if answer.holds is not True:
            alarms += 1
            print(f"ALARM | {' '.join(flags)} | {answer}", flush=True)
    return alarms, len(combinations)


def main(words: list[str]) -> int:
    """Print the results and return the status."""
    if words[:1] == [RANK_OPTION]:
        return run_rank(words[1], words[2:])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["RNN_SCALING_OPERATORS"] = "off"
    import tensorflow  # noqa: F401 - the forked processes have it

    faults = count_faults(words)
    alarms = 0
    combinations = 0
    if not words or "right" in words:
        alarms, combinations = count_alarms()
    print(f"{faults}; {alarms} false alarms in {combinations}")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
