"""How many faults planted in the trainer `verify` finds and names, and how often it is wrong.

    python -m benchmarks.planted_faults              plants every fault, then verifies correct combinations
    python -m benchmarks.planted_faults ring adam    faults whose name contains a word; "right" for the combinations

A fault is a piece of a file's text, its replacement, the flags that run it, and the cause that the certificate must
name. Each fault is verified in a process forked from one that has loaded TensorFlow and no module of this project.
"""

from __future__ import annotations

import contextlib
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


def right() -> list[tuple[str, ...]]:
    """Flags of combinations without a fault."""
    several = [
        *itertools.product(
            (SGD, MOMENTUM, ADAM),
            (("--variable_update=replicated",), SERVER, INDEPENDENT),
            ((), CLIP),
        ),
        *itertools.product(
            (SGD, MOMENTUM),
            [
                (f"--compress_gradients={kind}",)
                for kind in ("float16", "bfloat16", "int8")
            ],
        ),
        *itertools.product(
            (
                ("--all_reduce_spec=xring",),
                ("--all_reduce_spec=hierarchical",),
                ("--gradient_repacking=3",),
            )
        ),
        *itertools.product(
            [(f"--unit_type={cell}",) for cell in ("gru", "nas", "layer_norm_lstm")],
            (SGD,),
        ),
        *itertools.product((("--model=lm",), ATTENTION, BAHDANAU), (SGD, ADAM)),
        *itertools.product((DECAY, PIECEWISE, REPEATED), (SGD, RMSPROP, ADAM)),
        *(
            (RAMP, SGD),
            (RAMP, MOMENTUM),
            (THREE, INT8),
            (THREE, ("--global_batch_size=17",)),
            (("--dropout=0.3",),),
        ),
        *(
            (("--variable_consistency=relaxed",),),
            (("--variable_consistency=relaxed",), INT8),
            (SERVER, ("--staged_vars=true",)),
        ),
        *(
            (("--variable_update=mirrored",),),
            (("--variable_update=keras_slicing",),),
            (("--compute_dtype=bfloat16",),),
        ),
        *(
            (("--sparse_gradients=densify",), INT8),
            (("--data_source=copy",),),
            (("--data_source=constant",),),
        ),
        *(
            (("--data_source=host",),),
            (("--time_major=false",),),
            (("--compress_gradients=float16", "--sparse_gradients=densify"),),
        ),
        (
            (
                "--num_workers=2",
                "--variable_update=collective_all_reduce",
                "--compress_gradients=float16",
            ),
        ),
        (("--num_workers=2", "--variable_update=collective_all_reduce"), INT8),
        (("--model=resnet20", "--batch_size=4", "--num_batches=3"),),
    ]
    return [tuple(itertools.chain.from_iterable(each)) for each in several]


def _verify(fault: Fault | None, flags: tuple[str, ...], path: str) -> None:
    """In a process of its own: plants the fault, verifies, and leaves the certificate."""
    sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    result: dict[str, Any] = {"error": "did not run"}
    try:
        if fault is not None:
            plant(fault)
        from rnn_scaling.commands import verify
        from rnn_scaling.records import record as records
        from rnn_scaling.reports.certificates import certificate_text

        with contextlib.redirect_stdout(io.StringIO()):
            path_of_record = f"{path}.run.json"
            verifier = (
                sys.executable,
                "-m",
                "benchmarks.planted_faults",
                "--rank",
                fault.name if fault else "",
            )
            status = verify.main(
                [
                    *small(flags),
                    *flags,
                    "--device=cpu",
                    f"--result_file={path_of_record}",
                ],
                verifier,
            )
        found = records.read(Path(path_of_record))
        certificate = found.certificate
        if certificate is None:
            result = {"error": str(found.error)}
        else:
            result = {
                "status": status,
                "verdict": certificate.verdict,
                "holds": certificate.holds,
                "sentence": certificate_text(certificate),
            }
    except BaseException as e:  # noqa: BLE001 - whatever it is, it is the result
        result = {"error": repr(e)[:300]}
    with open(path, "w") as file:
        json.dump(result, file)
    os._exit(0)


def small(flags: tuple[str, ...]) -> list[str]:
    """Flags of a small network, without those that `flags` contains or that its workload ignores."""
    if "--model=resnet20" in flags:
        return []
    left_out = (
        {"src_vocab_size", "src_max_len", "num_decoder_layers", "direction"}
        if "--model=lm" in flags
        else set()
    )
    if "--model=transformer" in flags:
        left_out |= {"num_units", "embedding_dim", "src_vocab_size", "direction"}
    left_out |= {flag[2:].partition("=")[0] for flag in flags}
    left_out |= (
        {"batch_size"} if any("global_batch" in flag for flag in flags) else set()
    )
    left_out |= {"src_max_len"} if "--data_source=copy" in flags else set()
    equal = ["--src_max_len=9"] if "--data_source=copy" in flags else []
    return [
        *equal,
        *(f"--{name}={value}" for name, value in SIZES.items() if name not in left_out),
    ]


def plant(fault: Fault) -> None:
    """Lets the module of this file be compiled from other text.

    Raises:
      ValueError: when that module is imported, if the text is not in it.
    """
    real = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> Any:
        if not loader.path.endswith(f"/{fault.file}"):
            return real(loader, name)
        text = loader.get_data(loader.path).decode()
        place = fault.find_in(text)
        if place is None:
            raise ValueError(f"{fault.file} lacks {fault.old!r}")
        return compile(
            text[: place.start()] + fault.new.strip() + text[place.end() :],
            loader.path,
            "exec",
            dont_inherit=True,
        )

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def certificate(fault: Fault | None, flags: tuple[str, ...]) -> dict[str, Any]:
    """What `verify` says: verdict, holds, sentence; or error."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/result.json"
        process = multiprocessing.get_context("fork").Process(
            target=_verify, args=(fault, flags, path)
        )
        process.start()
        process.join(300)
        if process.is_alive():
            process.kill()
            return {"error": "it did not end within 300 s"}
        with open(path) as file:
            result: dict[str, Any] = json.load(file)
        return result


def main(words: list[str]) -> int:
    """Prints a line for each fault and combination, and the rates; 1 where a right combination is called wrong."""
    if words[:1] == ["--rank"]:
        plants = [fault for fault in FAULTS if fault.name == words[1]]
        for fault in plants:
            plant(fault)
        from rnn_scaling.commands import verify

        return verify.main(words[2:])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["RNN_SCALING_OPERATORS"] = "off"
    import tensorflow  # noqa: F401 - the forked processes have it

    chosen = [
        fault
        for fault in FAULTS
        if not words or any(word in fault.name for word in words)
    ]
    found = named = 0
    for fault in chosen:
        result = certificate(fault, fault.flags)
        is_found = result.get("holds") is False and result["verdict"] != "cannot tell"
        is_named = is_found and bool(
            re.search(fault.cause, result["sentence"], re.IGNORECASE)
        )
        found, named = found + is_found, named + is_named
        said = result.get("error") or f"{result['verdict']}: {result['sentence']}"
        print(
            f"{'named' if is_named else 'found' if is_found else 'MISSED'} | {fault.name} | {said[:230]}",
            flush=True,
        )
    alarms, combinations = 0, right() if not words or "right" in words else []
    for flags in combinations:
        result = certificate(None, flags)
        if result.get("holds") is not True:
            alarms += 1
            print(f"ALARM | {' '.join(flags)} | {result}", flush=True)
    print(
        f"{found} of {len(chosen)} faults found, {named} with their cause; {alarms} false alarms in {len(combinations)}"
    )
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
