"""A fake of a user's trainer, without any framework.

python stand_in.py HOW NUM_DEVICES
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time


def main(how: str, num_devices: int) -> None:
    result_file = os.environ["RNN_SCALING_RESULT_FILE"]
    print(
        "cores",
        sorted(os.sched_getaffinity(0)),
        "devices",
        os.environ["RNN_SCALING_NUM_DEVICES"],
        flush=True,
    )
    print("on stderr", file=sys.stderr, flush=True)
    if how in ("record", "wrong", "late"):
        from rnn_scaling import Recorder

        # Runs that start within the same second and have equal times count as copies.
        tick_s = 2.0 if how == "late" else 1.0
        ticks = itertools.count()
        told = 3 if how == "wrong" else num_devices
        counts = {"num_devices": told, "num_warmup_batches": 1, "num_steps": 12}
        with Recorder(
            result_file, unit="tokens", clock=lambda: tick_s * next(ticks), **counts
        ) as recorder:
            for step in range(12):
                recorder.step(items=100 * num_devices + step)
        sys.exit(3 if how == "late" else 0)
    elif how == "rate":
        print(f"words/s: {1000 * num_devices:,}")
    elif how == "clock":
        for step in range(6):
            print(f"step {step}/6", flush=True)
            time.sleep(0.1)
    elif how == "daemon":
        subprocess.Popen(
            ["sleep", "61"],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        print("words/s: 1000")
    elif how == "steps":
        for step in range(1, 9):
            print(f"step {10 * step}: {0.125 * num_devices} ms, loss {8 / step}")
    elif how == "slow":  # a longer time than the process has existed
        print("step 10: 1e9 ms, loss 1")
    elif how == "crash":
        folder, name = os.path.split(result_file)
        open(os.path.join(folder, f".{name}.rank1"), "w").close()
        raise RuntimeError("no such luck")
    elif how == "folder":
        os.remove(result_file)
        os.mkdir(result_file)
    elif how == "link":
        os.rename(result_file, f"{result_file}.there")
        os.symlink(f"{result_file}.there", result_file)
    elif how == "escapes":
        print("words/s: nan\x1b[31m\x07\x9b2J \u202e\x00" + "x" * 200_000, end="")
    elif how == "half":
        with open(result_file, "w") as file:
            file.write('{"schema": "rnn_sca')
    elif how in ("signal", "killed"):
        if how == "killed":
            from rnn_scaling import Recorder

            Recorder(result_file, trainer="another name", num_warmup_batches=0).start()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
