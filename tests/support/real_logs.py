"""Short excerpts of logs that public projects published, with their sources; the texts are in golden/logs.

They are kept as they were printed: they show what a format looks like that was not written for a test.
"""

from __future__ import annotations

from tests.support.paths import GOLDEN


def read_raw(name: str) -> str:
    """Return a log as its program wrote it, with carriage returns and colour codes."""
    with (GOLDEN / f"logs/{name}.log").open(encoding="utf-8", newline="") as file:
        return file.read()


# github.com/mlcommons/training_results_v0.7, NVIDIA/results/dgx1_ngc20.06_pytorch/gnmt/result_0.txt; some of its TRAIN
# lines, most events and all of epochs 1 and 2 left out.
GNMT_MLPERF = read_raw("gnmt_mlperf")
GNMT = "".join(
    line
    for line in GNMT_MLPERF.splitlines(keepends=True)
    if not line.startswith(":::MLLOG")
)
# The same repository, NVIDIA/systems/dgx1_ngc20.06_pytorch.json; versions of the software left out.
MLPERF_SYSTEM = read_raw("mlperf_system")
# The log of Kubeflow's tf-controller examples, copied from the users' guide
# (github.com/kubeflow/kubeflow, user_guide.md).
TF_CNN_KUBEFLOW = read_raw("tf_cnn_kubeflow")
