"""The commands of the suite, by the question that they answer.

run.sh reads this file with sed, one line at a time, so that its help needs no Python.
"""

# Group -> command -> what it does, as the help prints them.
GROUPS = {
    "Measure": {
        "train": "one run, measured",
        "decode": "one run that translates, greedily or with beam search",
        "sweep": "many runs: every flag of the trainer takes a list",
        "local-cluster": "one run of several processes, also over slow links",
    },
    "Explain": {
        "inspect": "counts the operators and kernels of a step",
        "phases": "how each tower spends its step, from a traced run",
        "trace-db": "numbers from an Nsight Systems or nvprof database",
        "report": "tables, CSV, JSON, plots and one HTML page of a results folder",
        "tensorboard": "starts TensorBoard: scalars, graph, trace",
    },
    "Compare": {
        "compare": "is B slower than A? a verdict and an exit status for CI",
        "ab": "which of two settings is faster? runs both in turn",
        "history": "results over commits: when did it become slower?",
    },
    "Predict": {
        "predict": "what more devices would do, and how often that was right",
        "whatif": "which change of batch, device, link or exchange would help most?",
        "simulate": "steps on up to thousands of devices, event by event",
        "recommend": "the settings that train fastest on this machine",
    },
    "Check": {
        "verify": "compares a mode with serial training; gives a certificate",
        "audit": "finds impossible numbers in tables of scaling results",
        "links": "bandwidth and latency of memory, copies and all-reduces",
    },
    "Tools": {
        "import_log": "reads logs of other tools into the same tables",
        "make_tfrecords": "makes a small set of images to train on",
    },
}

# Old name -> the words to type instead. The help does not show old names.
MOVED = {
    "netlab": "local-cluster --link_mbit=200 ...",
    "threads": "recommend --threads ...",
}

COMMANDS = [name for commands in GROUPS.values() for name in commands]


def module_of(command: str) -> str:
    """Return the name of the module whose `main` runs a command."""
    return f"rnn_scaling.commands.{command.replace('-', '_')}"
