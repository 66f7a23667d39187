"""A trainer for tests of recommend, whose speed and memory follow from its flags.

python -m tests.support.speeds MODE --flags ... --result_file=FILE

It does not load TensorFlow. MODE is "speeds", "fails:OPTION=VALUE" (runs with this value
end in an error), "allocates" (it really allocates 1 MiB per sample), "killed:N" (SIGKILL
for N or more samples) or "interrupts:LABEL" (the run with this label interrupts the
process that started it).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.records import record
from tests.support.records import make_record

MIB = 2**20
ERROR = {"type": "ValueError", "message": "no such luck"}


def rate_of(flat):
    """Return the words/s of these options.

    `replicated` is 10 % faster than `parameter_server`, and batch size 64 is 20 %
    faster than 32.
    """
    rate = {"parameter_server": 1000.0, "replicated": 1100.0}.get(
        flat["variable_update"], 900.0
    )
    return rate * (1.2 if flat["batch_size"] == 64 else 1.0)


def main(words: list[str]) -> int:
    mode, _, detail = words[0].partition(":")
    given = flags.parse(words[1:], configs.OPTIONS)
    flat = configs.resolve(given, num_gpus=0, num_cores=2).flat()
    path = Path(given["result_file"])
    size, option = flat["batch_size"], detail.partition("=")
    if mode == "killed" and size >= int(detail):
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "interrupts" and path.stem == detail:
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)
    if mode == "fails" and str(flat[option[0]]) == option[2]:
        record.write(make_record("failed", config=flat, error=ERROR), path)
        return 1
    try:
        taken = bytearray(size * MIB) if mode == "allocates" else b""
    except MemoryError:
        message = f"out of memory: lower --batch_size={size}"
        error = {"type": "MemoryError", "message": message}
        record.write(make_record("failed", config=flat, error=error), path)
        return 1
    repeat = int(path.stem.rpartition(".r")[2]) if ".r" in path.stem else 1
    # No two processes take the same time.
    noise = 1 + 0.001 * ((7 * repeat + len(path.stem)) % 5) + os.getpid() / 1e10
    made = make_record(
        config=flat,
        seconds=[100 / rate_of(flat) * noise] * 12,
        warmup=2,
        memory={"peak_process_bytes": (50 + size) * MIB + len(taken) % 2},
        phases={"total": 3.0},
    )
    record.write(made, path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
