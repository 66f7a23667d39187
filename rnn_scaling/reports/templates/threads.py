"""Inter-op threads: from how many on dispatch does not limit training, and how fast the trainer's default is."""

_DEFAULT = "{devices:count device}: the trainer's default, {default:count thread},"
_AT_ONCE = "at most {at_once:.2f} run at once, with {most:count thread}."
TEMPLATES = {
    "threads-not-measured": "{devices:count device}: no run measured anything.",
    "threads-one-run-each": "{devices:count device}: one run each shows no difference; use --repeats=3 or more.",
    "threads-too-noisy": (
        "{devices:count device}: too noisy to judge ({best:count thread} ran fastest): a slow-down below {limit:.0%} "
        "would not show; use more --repeats, or a quieter machine."
    ),
    "threads-fewest-fastest": "{devices:count device}: dispatch is no limit: {best:count thread} ran fastest.",
    "threads-fewest-enough": (
        "{devices:count device}: dispatch is no limit: {fewest:count thread} {fewest:is|are} within the noise "
        "of the fastest ({best:count thread})."
    ),
    "threads-detectable": "{devices:count device}: a slow-down below {limit:.1%} would not show in these runs.",
    "threads-enough": (
        "{devices:count device}: from {enough:count thread} on, dispatch does not limit training "
        "({best:count thread} ran fastest)."
    ),
    "threads-unclear": (
        "{devices:count device}: dispatch does not limit training with {best:count thread}, the fastest. For "
        "{threads:list} threads the runs are too noisy: a slow-down below {limit:.0%} would not show."
    ),
    "threads-slower": "{devices:count device}: {threads:count thread} reached {share:interval 1} % of the fastest.",
    "threads-failed": "{devices:count device}: no run measured anything at thread count {threads:list}.",
    "towers-in-turn": (
        "{devices:count device}: towers run one after the other at thread count {threads:list}; " + _AT_ONCE
    ),
    "towers-unclear": (
        "{devices:count device}: whether towers run one after the other at thread count {threads:list} is unclear; use "
        "--repeats=3 or more on a quiet machine with a core for each device."
    ),
    "towers-at-once": "{devices:count device}: towers never run one after the other; " + _AT_ONCE,
    "default-not-measured": f"{_DEFAULT} was not measured.",
    "default-fastest": f"{_DEFAULT} was the fastest.",
    "default-one-run": _DEFAULT + " reached {share:interval 1} % of the fastest.",
    "default-slower": _DEFAULT + " is slower than the fastest ({share:interval 1} % of its rate).",
    "default-within-noise": _DEFAULT + " is within the noise of the fastest ({share:interval 1} % of its rate).",
    "threads-shared-cores": (
        "{devices:count device}: the devices share {cores:count core}; expect other numbers on more cores."
    ),
    "threads-load": (
        "{devices:count device}: other processes used up to {load:share} of the cores during {loaded} of {runs} runs."
    ),
    "threads-intervals": "± {unit}/s is {interval}.",
}
