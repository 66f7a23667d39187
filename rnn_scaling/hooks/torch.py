"""python -m rnn_scaling.hooks.torch SCRIPT ARGUMENTS: run a PyTorch script and record it.

The script is not changed. Each optimizer step becomes a JSON line of the file that the
variable RNN_SCALING_HOOK_FILE names (default: hooks.jsonl). This package imports only
the standard library and torch, so it runs in the Python of the user.

`serve` imports torch once and forks the ranks of each run, for `verify --trainer`.
"""

import gc
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rnn_scaling.hooks import checkpoints, ranks, script
from rnn_scaling.hooks.observer import Observer


def main(words: Sequence[str]) -> None:
    """Run one script in this process and record all its steps."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"folder": folder, "num_steps": sys.maxsize, "dropout_off": False}
        path = os.environ.get(ranks.FILE_VARIABLE, "hooks.jsonl")
        _run_script(words, settings, path)


def _run_script(words: Sequence[str], settings: Mapping[str, Any], path: str) -> None:
    """Run a script like Python does, and record it.

    Args:
      words: The script or "-m MODULE", and its arguments.
      settings: The conditions; see `Observer`.
      path: The file of the record.
    """
    file = open(path, "w")  # noqa: SIM115, the observer closes it
    observer = Observer(settings, file)
    observer.install()
    checkpoints.redirect(settings["folder"])
    torch.multiprocessing.spawn = _call_this_rank
    torch.multiprocessing.start_processes = _call_this_rank
    _use_gloo_without_gpus()
    try:
        script.run(words)
    except BaseException as e:
        if not isinstance(e, SystemExit) or e.code not in (None, 0):
            observer.finish("failed")
            raise
    observer.finish("exit")


def _call_this_rank(
    function: Any, args: Any = (), nprocs: int = 1, *others: Any, **options: Any
) -> None:
    """Replace `torch.multiprocessing.spawn`: each rank is a process already."""
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if nprocs != num_ranks:
        sys.exit(
            f"spawn: nprocs is {nprocs}, but verify runs {num_ranks} ranks; "
            "pass {num_devices} in --trainer"
        )
    function(int(os.environ.get("RANK", "0")), *args)


def _use_gloo_without_gpus() -> None:
    if torch.cuda.is_available() or not torch.distributed.is_available():
        return
    original = torch.distributed.init_process_group

    def init(backend: Any = None, *args: Any, **options: Any) -> Any:
        if backend and "nccl" in backend:
            backend = "gloo"
        return original(backend, *args, **options)

    torch.distributed.init_process_group = init


def serve() -> None:
    """Run jobs of a server, which has imported torch once and forks the ranks."""
    # The first optimizer imports a second of modules, which the ranks now inherit.
    torch.optim.SGD([torch.zeros(1)], lr=0.1)
    if hasattr(torch.compiler, "set_stance"):
        # Compiled code would call the hooks only while it is compiled, or fail.
        torch.compiler.set_stance("force_eager")
    # Objects of modules are not searched in ranks, and their pages stay shared.
    gc.freeze()
    ranks.serve(torch.__version__, _run_job)


def _run_job(job: ranks.Job, path: str) -> None:
    torch.set_num_threads(job["num_threads"])
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()  # like in a process that starts by itself
    _run_script(job["words"], job["settings"], path)


if __name__ == "__main__":
    main(sys.argv[1:])
