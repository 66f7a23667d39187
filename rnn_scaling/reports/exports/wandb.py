"""Runs in Weights & Biases: options as the configuration, metrics as the summary.

`registry.EXPORTS` names this module; `exported` describes its interface.
"""

from rnn_scaling.reports.exports.exported import Exported, list_batch_values
from rnn_scaling.system.files.terminal import format_count


def write(exported: Exported, destination: str) -> str:
    """Add one run of Weights & Biases per run; return a line about them.

    Args:
      exported: The runs.
      destination: The project. WANDB_MODE=offline needs no account.

    Raises:
      ImportError: If the package wandb is not installed.
    """
    import wandb

    for run in exported.runs:
        config = {**run.options, **run.labels}
        with wandb.init(project=destination, name=run.name, config=config) as session:
            for step, values in enumerate(list_batch_values(run)):
                session.log(dict(values), step=step)
            session.summary.update(dict(run.metrics))
    return f"{destination}: {format_count(len(exported.runs), 'run')}"
