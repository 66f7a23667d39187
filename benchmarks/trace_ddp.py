"""Trace DDP over gloo on two processes, of which rank 1 sleeps in its forward pass.

    .venv-torch/bin/python -m torch.distributed.run --nproc_per_node=2 \\
        benchmarks/trace_ddp.py FOLDER --delay_s=0.05
    ./run.sh inspect FOLDER

`inspect` must show that rank 0 waits for the delay (docs/inspect.md).
"""

import argparse
import os
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule


class Network(torch.nn.Module):
    """Two layers, and a pause before them."""

    def __init__(self, units: int, delay_s: float) -> None:
        super().__init__()
        self.first = torch.nn.Linear(units, units)
        self.second = torch.nn.Linear(units, units)
        self.delay_s = delay_s

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.delay_s)
        return self.second(torch.relu(self.first(batch))).square().mean()


def main() -> None:
    options = parse_options()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    os.makedirs(options.folder, exist_ok=True)
    trace_steps(options, distributed.get_rank())
    distributed.destroy_process_group()


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", help="folder of the traces")
    parser.add_argument(
        "--delay_s",
        type=float,
        default=0.05,
        help="seconds that rank 1 sleeps in each forward pass",
    )
    parser.add_argument("--units", type=int, default=256, help="width of the layers")
    parser.add_argument("--steps", type=int, default=6, help="number of training steps")
    return parser.parse_args()


def trace_steps(options: argparse.Namespace, rank: int) -> None:
    """Train, and write the trace of --steps steps after the first three."""
    network = Network(options.units, options.delay_s if rank == 1 else 0.0)
    # Small buckets, so that a step has several all-reduces.
    ddp = DistributedDataParallel(network, bucket_cap_mb=0.1)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.1)
    batch = torch.randn(options.units, options.units)

    def write_trace(profiler: profile) -> None:
        profiler.export_chrome_trace(f"{options.folder}/rank{rank}.json.gz")

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=2, warmup=1, active=options.steps, repeat=1),
        on_trace_ready=write_trace,
    ) as profiler:
        for _ in range(3 + options.steps):
            optimizer.zero_grad()
            ddp(batch).backward()
            optimizer.step()
            profiler.step()


if __name__ == "__main__":
    main()
