"""One small log of each format, written for these tests in the documented form."""

from __future__ import annotations

import json

from tests.support import real_logs
from tests.support.paths import GOLDEN

TF_CNN = """\
TensorFlow:  1.15
Model:       resnet50
Dataset:     imagenet (synthetic)
Mode:        training
SingleSess:  False
Batch size:  128 global
             64 per device
Num batches: 20
Num epochs:  0.00
Devices:     ['/gpu:0', '/gpu:1']
NUMA bind:   False
Data format: NCHW
Optimizer:   sgd
Variables:   replicated
AllReduce:   nccl
==========
Generating training model
Running warm up
Done warm up
Step\tImg/sec\ttotal_loss
1\timages/sec: 400.0 +/- 0.0 (jitter = 0.0)\t8.108
10\timages/sec: 402.5 +/- 1.5 (jitter = 2.1)\t7.998
20\timages/sec: 404.1 +/- 0.9 (jitter = 1.7)\t7.877
----------------------------------------------------------------
total images/sec: 403.77
----------------------------------------------------------------
"""


def tf_cnn_horovod(ranks: int, per_rank: float, tag: str = "") -> str:
    """Every rank's output line by line, rank after rank, with `tag` (a format of the rank) before each line."""
    listed = ", ".join(f"'horovod/gpu:{rank}'" for rank in range(ranks))
    head = ["Model:       resnet101", f"Batch size:  {64 * ranks} global", "             64 per device"]
    head += [f"Devices:     [{listed}]", "Variables:   horovod", "==========", "Step\tImg/sec\ttotal_loss"]
    steps = [f"{step}\timages/sec: {per_rank:.1f} +/- 0.5 (jitter = 1.0)\t9.1" for step in (1, 10)]
    lines = []
    for line in [*head, *steps]:
        lines += [tag.format(rank) + line for rank in range(ranks)]
    for rank in range(ranks):
        lines.append(tag.format(rank) + f"total images/sec: {ranks * per_rank - 0.01 * rank:.2f}")
    return "\n".join(lines) + "\n"


def horovod_synthetic(ranks: int, rate: float = 100.0) -> str:
    """Rank 0's output of a run whose two iterations are `rate` -+ 1."""
    return f"""\
Model: resnet50
Batch size: 32
Number of GPUs: {ranks}
Running warmup...
Running benchmark...
Iter #0: {rate - 1:.1f} img/sec per GPU
Iter #1: {rate + 1:.1f} img/sec per GPU
Img/sec per GPU: {rate:.1f} +-2.0
Total img/sec on {ranks} GPU(s): {rate * ranks:.1f} +-{1.96 * ranks:.1f}
"""


HOROVOD_SYNTHETIC = horovod_synthetic(4)

# Tensor 1: negotiation 0..30 us (rank 1 is 20 us late), operation 40..100 with queue 10 and collective 40 us inside.
# Tensor 2: fused with it, the same operation.
_EVENTS = [
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1700000000000000}},
    {"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "dense/kernel"}},
    {"name": "process_sort_index", "ph": "M", "pid": 1, "args": {"sort_index": 1}},
    {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 0, "pid": 1},
    {"ph": "X", "name": "0", "ts": 5, "pid": 1, "dur": 0},
    {"ph": "X", "name": "1", "ts": 25, "pid": 1, "dur": 0},
    {"ph": "E", "ts": 30, "pid": 1},
    {"ph": "i", "name": "CYCLE_START", "ts": 35, "s": "g"},
    {"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "dense/bias"}},
    {"ph": "B", "name": "ALLREDUCE", "ts": 40, "pid": 1},
    {"ph": "B", "name": "ALLREDUCE", "ts": 40, "pid": 2},
    {"ph": "B", "name": "QUEUE", "ts": 40, "pid": 1},
    {"ph": "E", "ts": 50, "pid": 1},
    {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 50, "pid": 1},
    {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 50, "pid": 2},
    {"ph": "E", "ts": 90, "pid": 1},
    {"ph": "E", "ts": 90, "pid": 2},
    {"ph": "E", "ts": 100, "pid": 1, "args": {"dtype": "float32", "shape": "[512, 512]"}},
    {"ph": "E", "ts": 100, "pid": 2, "args": {"dtype": "float32", "shape": "[512]"}},
]
HOROVOD_TIMELINE = "[\n" + ",\n".join(json.dumps(event) for event in _EVENTS) + "]\n"

NCCL_TESTS = """\
# nccl-tests version 2.17.0 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 4 minBytes 1024 maxBytes 1048576 step: 1024(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on     node01 device  0 [0000:07:00] NVIDIA V100
#  Rank  1 Group  0 Pid   4711 on     node01 device  1 [0000:0a:00] NVIDIA V100
#  Rank  2 Group  0 Pid   4711 on     node01 device  2 [0000:47:00] NVIDIA V100
#  Rank  3 Group  0 Pid   4711 on     node01 device  3 [0000:4e:00] NVIDIA V100
#
#                                                              out-of-place                       in-place          \n\
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n\
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n\
        1024           256     float     sum      -1    20.48    0.05    0.07       0    20.00    0.05    0.08       0
     1048576        262144     float     sum      -1    65.54   16.00   24.00       0    64.00   16.38   24.58     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 12.1825 \n\
#
# Collective test concluded: all_reduce_perf
"""  # noqa: E501

NCCL_TESTS_JSON = json.dumps(
    {
        "version": 3,
        "start_time": "2026-01-02 03:04:05",
        "args": ["./build/all_gather_perf", "-g", "1"],
        "env": ["SECRET_TOKEN=hunter2"],
        "nccl_version": 22703,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "devices": [{"rank": rank, "group": 0, "device_info": "NVIDIA V100"} for rank in range(2)],
        },
        "results": [
            {
                "size": size,
                "count": size // 8,
                "type": "float",
                "redop": "none",
                "root": "    -1",
                "out_of_place": {"time": size / 1e4, "alg_bw": 10.0, "bus_bw": 5.0, "nwrong": 0.0},
                "in_place": {"time": size / 2e4, "alg_bw": 20.0, "bus_bw": 10.0, "nwrong": None},
                "actual_iterations": 20,
                "experiment_name": "",
            }
            for size in (800000, 1600000)
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 7.5, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-01-02 03:04:09",
    },
    separators=(",", ":"),
)


def mllog(key: str, ms: int, value: object = None, **metadata: object) -> str:
    """One line of an MLPerf log."""
    event = {"namespace": "", "time_ms": 1700000000000 + ms, "event_type": "POINT_IN_TIME", "key": key}
    return ":::MLLOG " + json.dumps(
        {**event, "value": value, "metadata": {"file": "train.py", "lineno": 7, **metadata}}
    )


MLPERF = "\n".join(
    [
        mllog("submission_benchmark", 0, "gnmt"),
        mllog("submission_platform", 0, "2xNODE"),
        mllog("global_batch_size", 1, 2048),
        mllog("seed", 1, 42),
        mllog("number_of_nodes", 1, 2),
        mllog("accelerators_per_node", 1, 8),
        mllog("init_start", 1000),
        mllog("init_stop", 4000),
        mllog("run_start", 5000),
        "some other output",
        mllog("tracked_stats", 60000, {"throughput": 1000.0, "loss": 2.5}, step=100),
        mllog("tracked_stats", 90000, {"throughput": 1200.0}, step=200),
        mllog("eval_accuracy", 95000, 23.1, epoch_num=1),
        mllog("eval_accuracy", 104000, 24.2, epoch_num=2, samples_count=100000),
        mllog("run_stop", 105500, None, status="success", epoch_num=2),
    ]
) + "\n"  # fmt: skip

BANDWIDTH_TEST = """\
[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: NVIDIA V100
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t12.3

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   1024\t\t\t\t0.5
   32000000\t\t\t739.6

Result = PASS

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.
"""

P2P = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, Tesla M60, pciBusID: 5, pciDeviceID: 0, pciDomainID:0
Device: 1, Tesla M60, pciBusID: 6, pciDeviceID: 0, pciDomainID:0
Device=0 CANNOT Access Peer Device=1
Device=1 CANNOT Access Peer Device=0

***NOTE: In case a device doesn't have P2P access to other one, it falls back to normal memcopy procedure.
So you can see lesser Bandwidth (GB/s) in those cases.

P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     0
     1\t     0     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1 \n\
     0 114.41   5.26 \n\
     1   5.27 120.02 \n\
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1 \n\
     0   4.44  23.37 \n\
     1  19.97   4.16 \n\

   CPU     0      1 \n\
     0   3.50   8.25 \n\
     1   8.75   3.25 \n\

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.
"""

TOPO = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV2\tPIX\tSYS\tPHB\t0-15,32-47\t0\t\tN/A
GPU1\tNV2\t X \tPHB\tSYS\tPHB\t0-15,32-47\t0\t\tN/A
GPU2\tPIX\tPHB\t X \tSYS\tPHB\t0-15,32-47\t0\t\tN/A
GPU3\tSYS\tSYS\tSYS\t X \tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tPHB\tPHB\tPHB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

SEED_TRAINER = """\
Pass 0, Batch 25, Loss : 8.91234
Pass 0, Batch 30, Loss : 8.80001
|gpu number|batch_size|total time|speed|speedup ratio|
|1|384|27.720|55411.433|1.00|
Pass 0, Batch 30, Loss : 8.80002
|gpu number|batch_size|total time|speed|speedup ratio|
|2|384|28.461|107938.535|1.00|
"""


def raw(name: str) -> str:
    """A log that a program really wrote, with its carriage returns and colour codes."""
    with (GOLDEN / f"logs/{name}.log").open(encoding="utf-8", newline="") as file:
        return file.read()


ALL = {
    "tf_cnn_benchmarks": TF_CNN,
    "horovod_synthetic": HOROVOD_SYNTHETIC,
    "horovod_timeline": HOROVOD_TIMELINE,
    "nccl_tests": NCCL_TESTS,
    "nccl_tests_json": NCCL_TESTS_JSON,
    "mlperf": MLPERF,
    "mlperf_system": real_logs.MLPERF_SYSTEM,
    "gnmt": real_logs.GNMT,
    "bandwidth_test": BANDWIDTH_TEST,
    "p2p_bandwidth_latency": P2P,
    "nvidia_smi_topo": TOPO,
    "seed_trainer": SEED_TRAINER,
    "hugging_face": raw("hugging_face").rpartition("\r")[0].rpartition("\r")[0].rpartition("\r")[2],
    "keras": raw("keras"),
    "lightning": raw("lightning_rich"),
    "tqdm": raw("tqdm_slow"),
}
