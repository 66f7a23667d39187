"""A fake of rnn_scaling.links.worker with the faults in FOLDER/faults.json.

    python -m tests.links.fake_worker FOLDER REQUEST RESULT

Times are 10 us + 1 us per KiB; the function `products` has the times of matrix products.
faults.json maps an algorithm, or a request's `what`, to "hang" (after the first sizes
were written), "crash", "error: TEXT" or "wrong".
"""

import json
import os
import pickle
import sys
import time
from pathlib import Path

from rnn_scaling.links import gemm
from rnn_scaling.links.gemm import Gemm, Product
from rnn_scaling.links.processes import WorkerOutcome
from rnn_scaling.links.series import ALL_REDUCE, MEMORY, Point, Series


def run(words):
    """Carry out a request; `words` are FOLDER, REQUEST and RESULT."""
    folder, request_file, result = map(Path, words)
    request = json.loads(request_file.read_text())
    name = request.get("algorithm") or (
        "nothing" if request["what"] == "all_reduce" else request["what"]
    )
    with open(folder / "log", "a") as log:
        log.write(f"{name} {os.getpid()}\n")
    fault = json.loads((folder / "faults.json").read_text()).get(name, "")
    print(
        f"progress 0 {request['rounds']} {name}, first calls",
        file=sys.stderr,
        flush=True,
    )
    if fault.startswith("error"):
        sys.exit(fault)
    if request["what"] == "compute" and fault != "crash":
        result.write_bytes(
            pickle.dumps(WorkerOutcome(products=tuple(products(request))))
        )
        return
    wrong = 5 if fault == "wrong" else None if fault == "hang" else 0
    points = tuple(
        Point(n, (1e-5 + 1e-9 * n,) * 3, 1, wrong) for n in request.get("sizes", ())
    )
    kind = ALL_REDUCE if request["what"] == "all_reduce" else MEMORY
    traffic = 0 if request["what"] == "cpu_copies" else 1
    series = Series(
        kind, name, points, traffic, request["num_devices"] if kind == ALL_REDUCE else 0
    )
    gradient_bytes = (("small", 3000),) if name == "nothing" else ()
    result.write_bytes(
        pickle.dumps(WorkerOutcome((series,), gradient_bytes=gradient_bytes))
    )
    if fault == "crash":
        os.abort()
    if fault == "hang":
        (folder / "hangs").touch()
        time.sleep(600)


def products(request):
    """Return matrix products at 2 GFLOP/s per device for the first shape.

    The second shape runs at 4 GFLOP/s, the third at 6 and so on, and the second type is
    twice as fast. Three devices are disturbed by other load.
    """
    return [
        Gemm(
            dtype,
            request["num_devices"],
            request["cores_per_device"],
            True,
            tuple(
                Product(
                    tuple(shape),
                    (gemm.count_flops(shape) / (2e9 * 2**n * (1 + m)),) * 3,
                )
                for m, shape in enumerate(request["shapes"])
            ),
            disturbed=request["num_devices"] == 3,
        )
        for n, dtype in enumerate(request["dtypes"])
    ]


if __name__ == "__main__":
    run(sys.argv[1:])
