"""Name -> module tables. A new kernel, mode, algorithm or report is one file and one line here.

The tables hold module paths, so that what a module imports loads only when it is chosen.
"""

from __future__ import annotations

import importlib
from types import ModuleType

VARIABLE_UPDATES = {
    "independent": "rnn_scaling.training.variable_update.independent",
    "parameter_server": "rnn_scaling.training.variable_update.parameter_server",
    "replicated": "rnn_scaling.training.variable_update.replicated",
    "mirrored": "rnn_scaling.training.variable_update.mirrored",
}
ALL_REDUCES = {
    "nccl": "rnn_scaling.training.all_reduce.nccl",
    "collective": "rnn_scaling.training.all_reduce.collective",
    "xring": "rnn_scaling.training.all_reduce.xring",
    "rechd": "rnn_scaling.training.all_reduce.rechd",
    "pscpu": "rnn_scaling.training.all_reduce.pscpu",
    "psgpu": "rnn_scaling.training.all_reduce.psgpu",
    "hierarchical": "rnn_scaling.training.all_reduce.hierarchical",
}
DATA_SOURCES = {
    "device": "rnn_scaling.data.device",
    "constant": "rnn_scaling.data.constant",
    "host": "rnn_scaling.data.host",
    "text": "rnn_scaling.data.text",
}
ENGINES = {
    "local": "rnn_scaling.training.engines.local",
}
METRICS = {
    "words_per_second": "rnn_scaling.analysis.metrics.words_per_second",
    "speedup": "rnn_scaling.analysis.metrics.speedup",
    "efficiency": "rnn_scaling.analysis.metrics.efficiency",
}
REPORTS = {
    "table": "rnn_scaling.reports.table",
    "csv": "rnn_scaling.reports.csv_table",
    "json": "rnn_scaling.reports.json_report",
    "page": "rnn_scaling.reports.page.document",
    "plot": "rnn_scaling.reports.pictures.plot",
}
IMPORTERS = {
    "tf_cnn_benchmarks": "rnn_scaling.importers.tf_cnn_benchmarks",
    "horovod_synthetic": "rnn_scaling.importers.horovod_synthetic",
    "horovod_timeline": "rnn_scaling.importers.horovod_timeline",
    "nccl_tests": "rnn_scaling.importers.nccl_tests",
    "nccl_tests_json": "rnn_scaling.importers.nccl_tests_json",
    "mlperf": "rnn_scaling.importers.mlperf",
    "bandwidth_test": "rnn_scaling.importers.cuda_bandwidth",
    "p2p_bandwidth_latency": "rnn_scaling.importers.p2p_bandwidth",
    "nvidia_smi_topo": "rnn_scaling.importers.topo",
    "seed_trainer": "rnn_scaling.importers.seed_trainer",
}
CHECKS = {
    "values": "rnn_scaling.audit.checks.values",
    "speedup": "rnn_scaling.audit.checks.speedup",
    "efficiency": "rnn_scaling.audit.checks.efficiency",
    "work": "rnn_scaling.audit.checks.work",
    "sums": "rnn_scaling.audit.checks.sums",
    "ratios": "rnn_scaling.audit.checks.ratios",
    "swapped": "rnn_scaling.audit.checks.swapped",
    "shape": "rnn_scaling.audit.checks.shape",
    "copies": "rnn_scaling.audit.checks.copies",
    "cross_table": "rnn_scaling.audit.checks.cross_table",
    "record_parts": "rnn_scaling.audit.checks.record_parts",
}


def load(table: dict[str, str], name: str) -> ModuleType:
    """Imports and returns the module that `table` names `name`.

    Raises:
      ValueError: if the table has no such name.
    """
    if name not in table:
        raise ValueError(f"expected one of {', '.join(sorted(table))}, got {name!r}")
    return importlib.import_module(table[name])
