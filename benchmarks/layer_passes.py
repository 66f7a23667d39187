"""Time the passes of an LSTM or GRU layer of this project, oneDNN and PyTorch.

    python3 -m venv DIR && DIR/bin/pip install onednn onednn-devel
    g++ -O2 -std=c++17 -IDIR/include benchmarks/onednn_layer.cpp -LDIR/lib -ldnnl \\
        -Wl,--disable-new-dtags,-rpath,$PWD/DIR/lib -o onednn_layer
    # The wheel's runtime needs this:
    export OCL_ICD_FILENAMES=$PWD/DIR/lib/libintelocl.so
    python -m benchmarks.layer_passes --onednn=./onednn_layer \\
        --torch_python=.venv-torch/bin/python [--cell=gru] [--dtype=bfloat16]

Each peer is a process with one thread on one core, and is stopped while another one
works, so that other load affects all of them. All have the same weights and input; the
sums of their outputs are printed and must agree. "forward" keeps what the backward pass
needs; "backward" is the time of both passes minus the forward pass. A step includes
packing the weights, because training changes them in every step.

The share of the GEMM rate is the pass's matrix products / CPU seconds / the rate of a
product of 1,024 x 1,024 x 1,024 in the same rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.peers import add_round_options, measure_peers, serve, time_each
from rnn_scaling.system.files.markdown import format_table

PASSES = ("forward", "both")
# Gates of each cell.
GATES = {"lstm": 4, "gru": 3}
# Vectors of biases; the reset gate of oneDNN's GRU has a second one.
BIASES = {"lstm": 4, "gru": 4}
GEMM_SIZE = 1024  # rows and columns of both matrices
FORGET_BIAS = 1.0
HEAD = ("layer", "forward (ms)", "backward (ms)", "both, x own", "sum of outputs")


def make_arrays(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return input, weights and bias in oneDNN's layout and order of gates."""
    rng = np.random.default_rng(1)
    gates = GATES[options.cell]
    units = options.units
    shapes = {
        "x": (options.length, options.batch_size, options.input_dim),
        "w_x": (options.input_dim, gates, units),
        "w_h": (units, gates, units),
        "bias": (BIASES[options.cell], units),
    }
    arrays = {}
    for name, shape in shapes.items():
        arrays[name] = rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    return arrays


def read_arrays(folder: Path, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return the arrays that `write_arrays` wrote."""
    arrays = make_arrays(options)
    for name, array in arrays.items():
        arrays[name] = np.fromfile(folder / name, np.float32).reshape(array.shape)
    return arrays


def write_arrays(folder: Path, options: argparse.Namespace) -> None:
    """Write each array as plain float32."""
    folder.mkdir(exist_ok=True)
    for name, array in make_arrays(options).items():
        array.tofile(folder / name)


def make_tensorflow_layer(
    options: argparse.Namespace, is_own: bool
) -> Callable[[], float]:
    """Return one step of this project's layer, which returns the sum of the outputs.

    Args:
      is_own: Whether the project's operators compute it, or TensorFlow's.
    """
    import tensorflow as tf

    from rnn_scaling.models import encoder_table, stacks
    from rnn_scaling.models.extension import operators

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if not is_own:
        operators.is_usable = lambda dtype: False
    elif not operators.is_usable(options.dtype):
        sys.exit("error: this suite's CPU operators are not built; run ./run.sh setup")
    stack = stacks.RecurrentStack(
        options.input_dim,
        options.units,
        1,
        1,
        forget_bias=FORGET_BIAS if options.cell == "lstm" else 0.0,
        dtype=options.dtype,
        unit_type=options.cell,
    )
    kernel = encoder_table.load(None, "CPU", options.cell)
    run = kernel.build(stack)
    arrays = read_arrays(Path(options.folder), options)
    weights = [tuple(map(tf.Variable, _own_weights(arrays, options.cell)))]
    inputs = tf.constant(arrays["x"])
    lengths = tf.fill([options.batch_size], options.length)
    shape = (1, options.batch_size, options.units)
    state = tuple(tf.zeros(shape) for _ in stack.cell.STATE)

    @tf.function
    def forward() -> tf.Tensor:
        outputs, _ = run(weights, inputs, lengths, state, tf.constant([1, 2]))
        return tf.reduce_sum(tf.cast(outputs, tf.float32))

    @tf.function
    def both() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = forward()
        gradients = tape.gradient(total, [inputs, weights])
        # A gradient that the function does not return is not computed.
        return [total, *tf.nest.flatten(gradients)]

    if getattr(options, "pass") == "forward":
        return lambda: float(forward())
    return lambda: float(both()[0])


def _own_weights(arrays: dict[str, np.ndarray], cell: str) -> tuple[np.ndarray, ...]:
    """Return the weights in the order of the project's gates."""
    w_x = arrays["w_x"]
    w_h = arrays["w_h"]
    bias = arrays["bias"]
    if cell == "gru":
        # oneDNN's u, r, n become r, u, n.
        order = [1, 0, 2]
        w_x = w_x[:, order].reshape(len(w_x), -1)
        w_h = w_h[:, order].reshape(len(w_h), -1)
        return w_x, w_h, bias[[1, 0, 2, 3]].reshape(-1)
    # oneDNN's i, f, j, o become i, j, f, o.
    order = [0, 2, 1, 3]
    kernel = np.concatenate([w_x, w_h])[:, order]
    # oneDNN has no forget bias: this project adds it to the bias.
    bias = bias.copy()
    bias[1] -= FORGET_BIAS
    return kernel.reshape(len(kernel), -1), bias[order].reshape(-1)


def make_torch_layer(options: argparse.Namespace) -> Callable[[], float]:
    """Return one step of PyTorch's layer, which returns the sum of the outputs."""
    import torch

    torch.set_num_threads(1)
    arrays = read_arrays(Path(options.folder), options)
    kind = torch.nn.LSTM if options.cell == "lstm" else torch.nn.GRU
    layer = kind(options.input_dim, options.units)
    w_x = arrays["w_x"]
    w_h = arrays["w_h"]
    bias = arrays["bias"]
    bias_h = np.zeros_like(bias[:3])
    if options.cell == "gru":
        # oneDNN's u, r, n become r, u, n, and u' is the bias inside the reset gate.
        w_x = w_x[:, [1, 0, 2]]
        w_h = w_h[:, [1, 0, 2]]
        bias_h[2] = bias[3]
        bias = bias[[1, 0, 2]]
    else:
        bias_h = np.zeros_like(bias)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(w_x.reshape(len(w_x), -1).T.copy()))
        layer.weight_hh_l0.copy_(torch.tensor(w_h.reshape(len(w_h), -1).T.copy()))
        layer.bias_ih_l0.copy_(torch.tensor(bias.reshape(-1)))
        layer.bias_hh_l0.copy_(torch.tensor(bias_h.reshape(-1)))
    inputs = torch.tensor(arrays["x"], requires_grad=True)
    is_bfloat16 = options.dtype == "bfloat16"

    def step() -> float:
        layer.zero_grad(set_to_none=True)
        inputs.grad = None
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
            outputs, _ = layer(inputs)
        total = outputs.float().sum()
        if getattr(options, "pass") == "both":
            total.backward()
        return float(total)

    return step


def make_gemm(options: argparse.Namespace) -> Callable[[], float]:
    """Return one matrix product."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    matrix = tf.cast(tf.random.normal((GEMM_SIZE, GEMM_SIZE)), options.dtype)
    return lambda: float(tf.matmul(matrix, matrix)[0, 0])


def run_peer(options: argparse.Namespace) -> None:
    """Serve one peer in this process."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.serve == "torch":
        step = make_torch_layer(options)
    elif options.serve == "gemm":
        step = make_gemm(options)
    else:
        step = make_tensorflow_layer(options, is_own=options.serve == "own")
    serve(step(), time_each(step))


def make_peer_command(
    peer: str, options: argparse.Namespace, folder: Path
) -> list[str]:
    """Write the arrays for a peer, and return the command line that starts it.

    Args:
      peer: An implementation and a pass, such as "own both"; or "gemm".
      folder: Folder for the arrays.
    """
    name, _, pass_name = peer.partition(" ")
    write_arrays(folder, options)
    sizes = [options.length, options.batch_size, options.input_dim, options.units]
    if name == "onednn":
        words = [options.onednn, options.cell, options.dtype, pass_name]
        return [*words, *map(str, sizes), str(folder)]
    python = options.torch_python if name == "torch" else sys.executable
    words = [python, "-m", "benchmarks.layer_passes", f"--serve={name}"]
    words += [f"--pass={pass_name or 'forward'}", f"--folder={folder}"]
    for option in ("cell", "dtype", "length", "batch_size", "input_dim", "units"):
        words.append(f"--{option}={getattr(options, option)}")
    return words


def count_gflop_of_forward(options: argparse.Namespace) -> float:
    """Return the GFLOP of the forward pass's products; backward has twice as many."""
    inputs = options.input_dim + options.units
    columns = GATES[options.cell] * options.units
    return 2 * options.length * options.batch_size * inputs * columns / 1e9


def main() -> None:
    options = parse_options()
    if options.serve:
        run_peer(options)
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    names = ["own", "stock"]
    if options.onednn:
        names.append("onednn")
    if options.torch_python:
        names.append("torch")
    options.peers = [f"{name} {pass_name}" for name in names for pass_name in PASSES]
    options.peers.append("gemm")
    peers, times = measure_peers(
        options,
        lambda peer, npz: make_peer_command(peer, options, npz.parent / "arrays"),
    )
    print_table(options, names, [peer.first_loss for peer in peers], times)


def parse_options() -> argparse.Namespace:
    """Return the options of the benchmark and of the processes that it starts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--cell", choices=list(GATES), default="lstm", help="cell of the layer"
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="data type of the matrix products",
    )
    parser.add_argument("--length", type=int, default=30, help="number of time steps")
    parser.add_argument(
        "--batch_size", type=int, default=32, help="number of sentences per step"
    )
    parser.add_argument("--input_dim", type=int, default=256, help="size of an input")
    parser.add_argument(
        "--units", type=int, default=256, help="hidden size of the layer"
    )
    add_round_options(parser, steps=10, warmup=5)
    parser.add_argument(
        "--onednn",
        default="",
        help="path of the program onednn_layer; "
        "without it, there are no rows of oneDNN",
    )
    parser.add_argument(
        "--torch_python",
        default="",
        help="path of a Python with PyTorch; without it, there are no rows of PyTorch",
    )
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--pass", default="forward", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def print_table(
    options: argparse.Namespace, names: list[str], sums: list[float], times: np.ndarray
) -> None:
    """Print the median CPU time and the share of the GEMM rate of each pass.

    Args:
      names: The implementations; each is two peers, and the last peer is "gemm".
      sums: The sum of the outputs of each peer.
      times: [round, peer, (wall, CPU)] seconds of a step.
    """
    cpu_s = np.median(times[:, :, 1], axis=0)
    gemm_rate = 2 * GEMM_SIZE**3 / 1e9 / cpu_s[-1]
    gflop = count_gflop_of_forward(options)
    sizes = f"T={options.length} B={options.batch_size} D={options.input_dim}"
    print(f"{options.cell}, {options.dtype}, {sizes} U={options.units}, one core;")
    print(f"GEMM rate {gemm_rate:.0f} GFLOP/s; forward {gflop:.2f} GFLOP.\n")
    rows = []
    own_both_s = times[:, 1, 1]
    for number, name in enumerate(names):
        forward_s = cpu_s[2 * number]
        both_s = times[:, 2 * number + 1, 1]
        backward_s = np.median(both_s - times[:, 2 * number, 1])
        ratio = np.median(both_s / own_both_s)
        forward_share = gflop / forward_s / gemm_rate
        backward_share = 2 * gflop / backward_s / gemm_rate
        cells = [
            name,
            f"{1e3 * forward_s:.2f} ({forward_share:.0%})",
            f"{1e3 * backward_s:.2f} ({backward_share:.0%})",
            f"{ratio:.2f}",
            f"{sums[2 * number]:.4f}",
        ]
        rows.append(cells)
    print(format_table(HEAD, rows), end="")


if __name__ == "__main__":
    main()
