"""Every command of the suite: name -> (module, what it does)."""

# run.sh reads these lines.
# fmt: off
COMMANDS = {
    "train": ("rnn_scaling.train", "one run, measured"),
    "decode": ("rnn_scaling.commands.decode", "one run that translates, greedily or with beam search"),
    "local-cluster": ("rnn_scaling.commands.local_cluster", "one run of several processes on this machine"),
    "sweep": ("rnn_scaling.commands.sweep", "many runs: every flag of the trainer takes a list"),
    "verify": ("rnn_scaling.commands.verify", "compares a mode with serial training; gives a certificate"),
    "report": ("rnn_scaling.commands.report", "tables, CSV, JSON, plots and one HTML page of a results folder"),
    "predict": ("rnn_scaling.commands.predict", "what more devices would do, and how often that was right"),
    "whatif": ("rnn_scaling.commands.whatif", "which change of batch, device, link or exchange would help most?"),
    "simulate": ("rnn_scaling.commands.simulate", "steps on up to thousands of devices, event by event"),
    "recommend": ("rnn_scaling.commands.recommend", "the settings that train fastest on this machine"),
    "ab": ("rnn_scaling.commands.ab", "which of two settings is faster? runs both in turn"),
    "compare": ("rnn_scaling.commands.compare", "is B slower than A? a verdict and an exit status for CI"),
    "history": ("rnn_scaling.commands.history", "results over commits: when did it become slower?"),
    "audit": ("rnn_scaling.commands.audit", "finds impossible numbers in tables of scaling results"),
    "import_log": ("rnn_scaling.commands.import_log", "reads logs of other tools into the same tables"),
    "make_tfrecords": ("rnn_scaling.commands.make_tfrecords", "makes a small set of images to train on"),
    "inspect": ("rnn_scaling.commands.inspect", "counts the operators and kernels of a step"),
    "threads": ("rnn_scaling.commands.threads", "how many dispatch threads keep the devices busy?"),
    "links": ("rnn_scaling.commands.links", "bandwidth and latency of memory, copies and all-reduces"),
    "phases": ("rnn_scaling.commands.phases", "where does the step of each tower go? from a traced run"),
    "netlab": ("rnn_scaling.commands.netlab", "one run over limited network links (needs root)"),
    "trace-db": ("rnn_scaling.commands.trace_db", "numbers from an Nsight Systems or nvprof database"),
    "tensorboard": ("rnn_scaling.commands.tensorboard", "starts TensorBoard: scalars, graph, trace"),
}
# fmt: on
