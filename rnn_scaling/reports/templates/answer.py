"""The answer of a report: what runs fastest, and how far it scales."""

_CORRELATION = "(rank correlation {value:.2f}, 95 % interval {low:.2f} to {high:.2f}, {models} models)."
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
    "trains-wrong": "TRAINS WRONG, do not use these speeds: {names:list}.",
    "scaling": "{subject}:",
    "fastest": "{subject} is the fastest of {series:count series|series} on {devices}: {rate:interval 1} {unit}/s.",
    "fastest-unclear": "Which of {series:count series|series} is fastest on {devices} is not clear: {tied:rates}.",
    "lowest-cost": (
        "The lowest cost of a billion {unit} on {machine} is {cost:interval 2} {currency} ({subject}, {devices})."
    ),
    "most-common-devices": "Some series have more devices; {devices} is the most that all have.",
    "others-slower": "{others:count other series|other series} {others:is|are} slower.",
    "slowed-by-load": "Other processes slowed {slowed:rates}.",
    "quiet-runs-would-tell": "Other processes slowed the slower ones: repeat the runs on a quiet machine.",
    "same-rates": "Their rates are the same to the last printed digit.",
    "repeats-would-show-differences": "--repeats={repeats} would most likely show differences of {percent} %.",
    "none-on-several": "None of {series:count series|series} was measured on several devices.",
    "none-sound": "None of {series:count series|series} can be called the fastest.",
    "no-common-devices": "The series have no number of devices above 1 in common, so none is called the fastest.",
    "one-ranked": "One of {series:count series|series} can be ranked.",
    "ranked-one-model": "Only series that train one model are ranked.",
    "ranked-right": "Series that train wrong are not ranked.",
    "not-ranked-diverged": "Not ranked, because the loss diverged: {names:list}.",
    "not-ranked-failed": "Not ranked, because no run succeeded: {names:list}.",
    "not-ranked-failed-on-several": "Not ranked, because no run on several devices succeeded: {names:list}.",
    "efficiency-range": (
        "{series:count series|series} reach {low:interval 1} % ({low_name}) to {high:interval 1} % ({high_name}) "
        "of the ideal on {devices}."
    ),
    "efficiency-range-mixed": (
        "{series:count series|series} reach {low:interval 1} % ({low_name}, on {low_devices}) to {high:interval 1} % "
        "({high_name}, on {high_devices}) of the ideal."
    ),
    "efficiency-follows": f"Efficiency follows the ratio of work to exchanged data {_CORRELATION}",
    "efficiency-falls": f"Efficiency falls where the ratio of work to exchanged data grows {_CORRELATION}",
    "efficiency-does-not-follow": (
        f"Efficiency does not follow the ratio of work to exchanged data measurably {_CORRELATION}"
    ),
    "too-few-models": (
        "Too few models to tell whether efficiency follows the ratio of work to exchanged data: {models} of at least "
        "{fewest} models have both numbers."
    ),
    "range-within-noise": "The difference between these two is within the noise.",
    "series-of-single-runs": "{single} of {series:count series|series} {single:is|are} single runs.",
    "series-unjudged": "{unjudged} of {series:count series|series} cannot be judged.",
}
