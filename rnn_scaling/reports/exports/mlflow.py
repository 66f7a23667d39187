"""Runs in MLflow: options as parameters, metrics, and the numbers of every batch.

`registry.EXPORTS` names this module; `exported` describes its interface.
"""

from rnn_scaling.reports.exports.exported import Exported, list_batch_values
from rnn_scaling.system.files.terminal import format_count


def write(exported: Exported, destination: str) -> str:
    """Add one MLflow run per run; return a line for the terminal.

    Args:
      exported: The runs.
      destination: A tracking URI, such as "sqlite:///mlflow.db" or a server's address.

    Raises:
      ImportError: If the package mlflow is not installed.
    """
    import mlflow

    mlflow.set_tracking_uri(destination)
    mlflow.set_experiment(exported.folder.name or "rnn_scaling")
    for run in exported.runs:
        with mlflow.start_run(run_name=run.name):
            devices = {"num_devices": run.row.row.num_devices}
            mlflow.log_params({**run.options, **devices})
            mlflow.set_tags({name: str(value) for name, value in run.labels.items()})
            mlflow.log_metrics(dict(run.metrics))
            for step, values in enumerate(list_batch_values(run)):
                mlflow.log_metrics(dict(values), step=step)
            record = exported.folder / f"{run.name}.json"
            if record.is_file():
                mlflow.log_artifact(str(record))
    return f"{destination}: {format_count(len(exported.runs), 'run')}"
