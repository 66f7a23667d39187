"""The answer of a report: what runs fastest, and how far it scales."""

TEMPLATES = {
    "page-written": "Everything else: {page}, or `./run.sh report --full`.",
    "plus-minus": "±: 95 % confidence interval over {most:count process|processes}.",
    "plus-minus-range": "±: 95 % confidence interval over {least} to {most:count process|processes}.",
    "unit-meaning": "{subject}: {items}.",
    "more-runs": "{runs:count more sweep} would complete the analysis; `report --full` lists {runs:it|them}.",
    "no-run-succeeded": "No run succeeded, so scaling cannot be judged. The reasons are below.",
    "loaded-runs": "{files:list} ran while other processes used the machine: repeat {files:it|them} alone.",
    "unknown-work": (
        "{trainers:list} are not compared: their records do not show the same model and batch_size "
        "(docs/any_trainer.md)."
    ),
}
