"""The commands of the suite by the question that they answer.

run.sh reads this file with sed, one line at a time, so that its help needs no Python.
"""

import itertools

# The lines of the help: group, command and purpose.
GROUPS = {
    "Measure": {
        "train": "one run, measured; with --decode a run that translates",
        "sweep": "many runs: every flag of the trainer takes a list",
        "local-cluster": "one run of several processes, also over slow links",
    },
    "Explain": {
        "inspect": "where a step goes: its operators, kernels, phases and traces",
        "report": "tables, CSV, JSON, plots and one HTML page of a results folder",
    },
    "Compare": {
        "compare": "is B slower than A? a verdict and an exit status for CI",
        "ab": "which of two settings is faster? runs both in turn",
        "history": "results over commits: when did it become slower?",
    },
    "Predict": {
        "predict": "what more devices, a change or failing links would do",
        "recommend": "the settings that train fastest on this machine",
    },
    "Check": {
        "verify": "compares a mode with serial training; gives a certificate",
        "audit": "finds impossible numbers in tables of scaling results",
        "links": "bandwidth and latency of memory, copies and all-reduces",
    },
    "Tools": {
        "import_log": "reads logs of other tools into the same tables",
        "tensorboard": "starts TensorBoard: scalars, graph, trace",
        "make_tfrecords": "makes a small set of images to train on",
    },
}

# Old names, which the help does not show, and the words to type instead.
MOVED = {
    "decode": "train --decode ...",
    "netlab": "local-cluster --link_mbit=200 ...",
    "phases": "inspect RUN ...",
    "simulate": "predict --simulate ...",
    "threads": "recommend --threads ...",
    "trace-db": "inspect FILE.sqlite ...",
    "whatif": "predict RESULTS --what_if ...",
}

COMMANDS = [*itertools.chain.from_iterable(GROUPS.values())]


def module_name(command: str) -> str:
    """Return the name of the module whose `main` runs a command."""
    return f"rnn_scaling.commands.{command.replace('-', '_')}"
