"""The commands of the suite by the question that they answer.

run.sh reads this file with sed, one line at a time, so that its help needs no Python.

A new command is a module of this package and a line of the table.
"""

import itertools

# The lines of the help: group, command and purpose.
GROUPS = {
    "Measure": {
        "train": "trains once and measures the speed; --decode translates",
        "sweep": "trains many times: every flag of train takes a list",
        "local-cluster": "trains once in several processes, also over slow links",
    },
    "Explain": {
        "inspect": "shows the operators, kernels and phases of a step",
        "report": "makes tables, CSV, JSON, plots and a page of a results folder",
    },
    "Compare": {
        "compare": "judges whether training became slower; exit status for CI",
        "ab": "finds the faster of two settings, by alternating runs",
        "history": "finds the commit that changed the speed",
    },
    "Predict": {
        "predict": "predicts the effect of more devices or of a change",
        "recommend": "finds the settings that train fastest on this machine",
    },
    "Check": {
        "verify": "compares a mode with serial training and writes a certificate",
        "audit": "finds contradictory numbers in tables of scaling results",
        "links": "measures memory, copies and all-reduces",
    },
    "Tools": {
        "import_log": "reads logs of other tools",
        "tensorboard": "starts TensorBoard with scalars, graph and trace",
        "make_tfrecords": "makes a small set of training images",
    },
}

# Old names, which the help does not show, and the command lines that replace them.
RENAMED = {
    "decode": "train --decode ...",
    "netlab": "local-cluster --link_mbit=200 ...",
    "phases": "inspect RUN ...",
    "simulate": "predict --simulate ...",
    "threads": "recommend --threads ...",
    "trace-db": "inspect FILE.sqlite ...",
    "whatif": "predict RESULTS --what_if ...",
}

COMMANDS = [*itertools.chain.from_iterable(GROUPS.values())]


def name_module(command: str) -> str:
    """Return the name of the module whose `main` runs a command."""
    return f"rnn_scaling.commands.{command.replace('-', '_')}"
