"""The table of all formats of logs: rows of patterns, and classes of other modules.

A log that prints settings and one rate per run is a `TotalsFormat`; a progress bar is a
`Bar`. All other logs of training runs are read by a pattern of the user (`regex_log`).
"""

import re
from collections.abc import Mapping

from rnn_scaling.records.importers import tf_cnn
from rnn_scaling.records.importers.bars import NUMBER, Bar
from rnn_scaling.records.importers.horovod_timeline import HorovodTimeline
from rnn_scaling.records.importers.matrices import BandwidthTest, PeerToPeer
from rnn_scaling.records.importers.mlperf import Mlperf
from rnn_scaling.records.importers.mlperf_systems import MlperfSystem
from rnn_scaling.records.importers.nccl_json import NcclJson, RcclJson
from rnn_scaling.records.importers.nccl_tests import NcclText
from rnn_scaling.records.importers.reading import LogFormat, parse_positive
from rnn_scaling.records.importers.topology_matrix import TopologyMatrix
from rnn_scaling.records.importers.totals import (
    Description,
    Settings,
    TotalsFormat,
    last_step,
    mean_of_steps,
)


def _describe_horovod(
    header: Mapping[str, str], command: Mapping[str, str]
) -> Description:
    devices = header.get("num_devices", header.get("Number", "1"))
    size = header.get("Batch size", "")
    num_devices = int(parse_positive(devices, "a number of devices"))
    options = {
        "model": header.get("Model"),
        "num_devices": num_devices,
        "batch_size": int(size) if size.isdecimal() else None,
        "device": "cpu" if header.get("kind") == "CPU" else "gpu",
    }
    return Description(options, workers=num_devices)


def _describe_gnmt(
    header: Mapping[str, str], command: Mapping[str, str]
) -> Description:
    sizes = []
    for text in (
        command.get("train_batch_size", ""),
        command.get("train_global_batch_size") or header.get("global_batch_size", ""),
    ):
        sizes.append(int(text) if re.fullmatch(r"[1-9]\d{0,11}", text) else None)
    batch_size, global_batch_size = sizes
    devices = None
    if batch_size and global_batch_size and global_batch_size % batch_size == 0:
        devices = global_batch_size // batch_size
    options = {
        "math": command.get("math"),
        "num_devices": devices,
        "batch_size": batch_size,
        "global_batch_size": None if batch_size else global_batch_size,
    }
    return Description(options, workers=devices or 1)


_TF_CNN_SETTINGS = frozenset((
    "TensorFlow", "Model", "Dataset", "Mode", "Batch size", "Num batches", "Devices",
    "Data format", "Variables", "AllReduce",
))  # fmt: skip
_FORMATS: tuple[LogFormat, ...] = (
    TotalsFormat(
        "tf_cnn_benchmarks",
        "images",
        needles=("images/sec: ", "Img/sec"),
        detected=r"\btotal images/sec: |\bStep\tImg/sec\t|\d\s+images/sec: \S+ \+/- ",
        total=r"total images/sec: (?P<rate>\S+)",
        rate_meaning="total images/sec",
        settings=Settings(
            r"(?:(?P<name>[A-Za-z][\w ]{1,30}):\s+|\s*(?=\S+ per device\s*$))"
            r"(?P<value>\S.*?)(?: per device)?\s*$",
            known=_TF_CNN_SETTINGS,
            begins=frozenset(("TensorFlow", "Model")),
            header_end=("==========", "Generating ", "Running warm up"),
            program="tf_cnn_benchmarks.py",
        ),
        step=(
            r"(?P<step>\d+)\s+images/sec: (?P<rate>\S+)"
            r"(?: \+/- (?P<error>\S+) \(jitter = (?P<jitter>\S+)\))?"
            r"(?:\s+(?!\+/-)\S.*)?"
        ),
        describe=tf_cnn.describe,
        columns={
            "step step": "steps",
            "step rate": "images/s of step lines",
            "step error": "standard error (images/s)",
            "step jitter": "jitter (images/s)",
        },
        cut_rate=last_step,
        notes=(
            "total images/sec = workers * steps * batch / wall time of all steps after "
            "the warm-up. The time is measured by the worker that prints it.",
            "A step line's images/sec is batch / mean step time so far. Its +/- is the "
            "standard error of the step rates (std / sqrt(steps)), and jitter is "
            "1.4826 * MAD. Neither is an interval over repeated runs.",
            "The log does not contain seconds. If there are several processes, the "
            "batch and the rate of a step line belong to one worker.",
        ),
    ),
    TotalsFormat(
        "horovod_synthetic",
        "images",
        needles=("img/sec", "Img/sec"),
        detected=(
            r"\bIter #\d+: \S+ img/sec per \w+|\bImg/sec per \w+: |"
            r"\bTotal img/sec on \S+ \w+\(s\): "
        ),
        total=(
            r"Total img/sec on (?P<num_devices>\S+) (?P<kind>\w+)\(s\): (?P<rate>\S+) "
            r"\+-\s?(?P<spread>\S+)"
        ),
        rate_meaning="Total img/sec",
        settings=Settings(
            r"(?P<name>Model|Batch size|Number|Img/sec)(?: of (?:GPU|CPU)s| per \w+)?: "
            r"(?P<value>.*?)(?: \+-.*)?$",
            known=frozenset(("Model", "Batch size", "Number", "Img/sec")),
            begins=frozenset(("Model",)),
        ),
        step=r"Iter #(?P<step>\d+): (?P<rate>\S+) img/sec per (?P<kind>\w+)",
        describe=_describe_horovod,
        columns={
            "spread": "1.96 std of iterations (images/s)",
            "Img/sec": "images/s of rank 0",
            "steps": "iterations",
        },
        cut_rate=mean_of_steps,
        notes=(
            "Total = number of ranks * rank 0's mean rate. Only rank 0 is timed; "
            "slower ranks count because steps are synchronous.",
            "'+-' is 1.96 * the standard deviation of the iterations (by default 10, "
            "of 10 batches each). It is a spread between iterations and not an "
            "interval of the mean. The total's is rank 0's times the number of ranks.",
            "The batch size is per rank (weak scaling). The rate of an iteration "
            "includes its work on the host. The data are synthetic.",
        ),
    ),
    HorovodTimeline(),
    NcclText(),
    NcclJson(),
    RcclJson(),
    Mlperf(),
    MlperfSystem(),
    # mlcommons/training_results_v0.7, NVIDIA/benchmarks/gnmt/.../seq2seq/train/trainer.py.
    TotalsFormat(
        "gnmt",
        "tokens",
        needles=("TRAIN [",),
        detected=r"TRAIN \[\d+\]\[\d+/\d+\]\s+Time \S+ \(.{0,120}?Tok/s \S+ \(",
        total=r".*Performance: Epoch: (?P<epoch>\d+)\s+Training: (?P<rate>\S+) Tok/s",
        rate_meaning="Training: N Tok/s",
        settings=Settings(
            r'.*"key": "(?P<name>global_batch_size)", "value": (?P<value>\d+)',
            known=frozenset(("global_batch_size",)),
            begins=frozenset(),
            program="train.py",
        ),
        # The first step of an epoch waits for data.
        step=(
            r".*TRAIN \[\d+\]\[(?P<step>[1-9]\d*)/\d+\]\s+Time .*"
            r"Tok/s (?P<rate>\S+) \(\S+(?:\s+Loss/tok (?!-?(?:nan|inf)).*)?"
        ),
        loss=r".*TRAIN \[\d+\]\[(?P<step>\d+)/.*Loss/tok -?(?:nan|inf)",
        has_rank_steps=True,
        describe=_describe_gnmt,
        columns={"epoch": "epoch", "steps": "steps shown"},
        cut_rate=mean_of_steps,
        notes=(
            "The rate is the log's own sum over ranks of the last epoch. If "
            "the log lacks this sum, the rate is the number of ranks times "
            "the mean of one rank's steps, without the first step of each "
            "epoch.",
            "Tokens are source and target tokens.",
        ),
    ),
    BandwidthTest(),
    PeerToPeer(),
    TopologyMatrix(),
    TotalsFormat(
        "seed_trainer",
        "words",
        needles=("|gpu number|batch_size|total time|speed|speedup ratio|",),
        # A ratio of 1.00 is printed for any number of GPUs.
        total=(
            r"\|(?!gpu number)(?P<num_devices>(?P<one>1(?=\|))?[^|]*)\|(?P<batch_size>[^|]*)"
            r"\|(?P<seconds>[^|]*)\|(?P<rate>[^|]*)"
            r"\|(?:(?(one)(?!)|1\.00)|(?P<speedup>[^|]*))\|?"
        ),
        rate_meaning="words/s",
        loss=r"Pass \d+, Batch (?P<step>\d+), Loss : -?nan\b",
        columns={"seconds": "seconds", "speedup": "speedup as printed"},
        notes=(
            "The batch size is per GPU. The clock starts after the first counted "
            "batch, but the words of that batch count. The speed is therefore about 5 "
            "% too high (20/19) on any number of GPUs.",
            "Words are source and target words of all GPUs, without padding.",
            "A printed ratio of 1.00 for several GPUs is the trainer's default.",
        ),
    ),
    TotalsFormat(
        "hugging_face",
        "samples",
        needles=("train_samples_per_second",),
        detected=r"""['"]train_samples_per_second['"]: ['"]?[^'",}\s]+""",
        total=r""".*?['"]train_samples_per_second['"]: ['"]?(?P<rate>[^'",}\s]+).*""",
        rate_meaning="samples/s",
        notes=(
            "The rate is the samples of all devices / the seconds of train(), "
            "including its first step, evaluation and saving.",
        ),
    ),
    # keras-team/keras, keras/src/utils/progbar.py, and keras/utils/generic_utils.py of
    # Keras 2; also the lines of verbose=2.
    Bar(
        "keras",
        re.compile(
            r"\s*(?P<step>\d+)/(?P<total>\d+|Unknown)\s"
            r"(?:[━\s]*|\s*\[[=>.]*\] -|\s*(?P<bar>-))\s*(?:ETA: )?\d[\d:]*s?\b"
            rf"(?=(?:.*?\D(?P<rate>{NUMBER})(?P<unit>(?:us|µs|ms|s)/step))?)"
            rf"(?=(?:.*?\bloss: (?P<loss>{NUMBER}))?)"
        ),
        needs="/",
        has_mean=False,
        validated=" val_",
        note=(
            "The seconds of a step are the mean of an epoch without its first step; "
            "with verbose=2 validation counts."
        ),
    ),
    # Lightning-AI/pytorch-lightning, lightning/pytorch/callbacks/progress/.
    Bar(
        "lightning",
        re.compile(
            r"\s*(?P<bar>Epoch) \d+(?:/-?\d+)?:?\s.*?[|━╸╺ ]\s*(?P<step>\d+)/(?P<total>\d+)"
            r"\s(?:\[(?P<elapsed>[\d:]{1,20})<)?.*?[, ](?P<rate>"
            rf"{NUMBER})(?P<unit>it/s|s/it)(?:.*?loss(?:=|: )(?P<loss>{NUMBER}))?"
        ),
        needs="Epoch",
        has_mean=False,
        distinction=(
            r"Sanity Checking|Validation DataLoader|Trainer\.fit|\bv_num\b|"
            r"Trainable params"
        ),
        note=(
            "A bar's rate is the mean since the epoch began; a bar of rich "
            "shows the mean of its latest steps."
        ),
    ),
    # tqdm/tqdm, `format_meter` of tqdm/std.py.
    Bar(
        "tqdm",
        re.compile(
            rf"(?P<bar>.*?)(?:\d+%\|[^|]*\|)? *(?P<step>{NUMBER})"
            rf"(?:/(?P<total>{NUMBER}|\?))?[^\s\[|/]* "
            r"\[(?P<elapsed>[\d:?]{1,20})(?:<[^,\]]*)?, *"
            rf"(?:\?|(?P<rate>{NUMBER}))(?P<unit>s/[^,\]]+|[^,\]]*/s)"
            rf"(?:[^\]]*?loss=(?P<loss>{NUMBER}))?"
        ),
        needs="[",
        has_mean=True,
        foreign=lambda text: FORMATS["lightning"].detect(text),
        note="A bar's last line has the mean rate from its first step to its last.",
    ),
)
FORMATS: Mapping[str, LogFormat] = {format.name: format for format in _FORMATS}
