"""The answer of a report: what runs fastest, and how far it scales."""

TEMPLATES = {
    "no-run-succeeded": "No run succeeded, so scaling cannot be judged. The reasons are below.",
    "loaded-runs": "{files:list} ran while other processes used the machine: repeat {files:it|them} alone.",
    "unknown-work": (
        "{trainers:list} are not compared: their records do not show the same model and batch_size "
        "(docs/any_trainer.md)."
    ),
}
