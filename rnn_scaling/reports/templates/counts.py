"""Operators and kernels of a step: whether runs agree, and why two encoders differ."""

TEMPLATES = {
    "counts-differ": "These counts must be the same, but differ: {subject}.",
    "counts-vary": "Batches of text differ in length, so their counts differ: {subject}.",
    "counts-of-last-step": "The tables show the last counted step.",
    "counts-agree": "Both counted steps have the same counts ({runs:count run}).",
    "counts-repeat": "All runs of a configuration have the same counts, by type ({runs:count repeated run}).",
    "onednn-on": "oneDNN was on and fused products with the operators after them; without it, counts differ.",
    "onednn-off": "oneDNN was off; where it is on, as by default on processors with AVX512-VNNI, counts differ.",
    "kernels-ratio": (
        "On {devices:count device} a step of {subject} invokes {kernels:,} kernels and a step of {reference} "
        "{reference_kernels:,}: {kernel_ratio:.2f} times the kernels from {operator_ratio:.2f} times the operators."
    ),
    "kernels-per-operator": (
        "An operator of {subject} invokes {per_operator:.1f} kernels a step on average, an operator of {reference} "
        "{reference_per_operator:.1f}."
    ),
    "encoder-kernel": "{subject} ran {kernel}.",
    "no-loops": "{subject} has no loop: no operator runs more than once a step.",
    "loops": (
        "{subject} has {loops:count while loop}. Their bodies run {iterations:,} times a step in total and carry "
        "{carried:.1f} values on average. Control flow makes up {control:,} of its kernels ({control_share:share})."
    ),
    "kernels-by-phase": (
        "Kernels by phase, {subject} against {reference}: forward {forward:,} against {reference_forward:,}, backward "
        "{backward:,} against {reference_backward:,}, all others {others:,} against {reference_others:,}."
    ),
    "kernels-by-family": (
        "The difference of {difference:+,} kernels: {control:+,} control flow of loops (Enter, Exit, LoopCond, Merge, "
        "NextIteration, Switch), {lists:+,} TensorList operators, {others:+,} other operators."
    ),
    "slicing": "The global batch is divided on the {on}. Its parts: {parts:list}.",
    "shared-memory": "Logical CPU devices share memory: a tensor between them is passed on, not copied.",
    "nothing-sent": "No device sends anything to another device.",
    "collectives-not-counted": "The exchange of collective operators is not counted here: {operators:list}.",
}
