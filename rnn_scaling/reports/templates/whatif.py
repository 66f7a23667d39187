"""Changes of a step: what they would gain, and what that assumes; time and cost of some work."""

TEMPLATES = {
    "whatif-parts": "{subject}, {devices:count device}. A step is {parts:list}.",
    "whatif-best": "{name} helps most: {gain:interval 2} times the rate.",
    "whatif-tie": "{name} gains most, {gain:interval 2} times the rate, but {names:list} may gain as much.",
    "whatif-none": "No change gains more than 0.5 %.",
    "whatif-batch": (
        "A second batch size tells how a step grows. A larger batch may need more samples to learn as much, "
        "which is not part of the gain."
    ),
    "whatif-batch-unknown": (
        "A step may grow fully with its batch or not at all; runs with a second --batch_size tell. "
        "A larger batch may need more samples to learn as much."
    ),
    "whatif-no-independent": (
        "Contention was not measured on {devices:count device}, so it may be exchange; runs with "
        "--variable_update=independent tell."
    ),
    "whatif-overlap": "No trace tells how much of the exchange overlaps with computation: 0 to 40 % is assumed.",
    "whatif-no-baseline": "{subject}: no run on one device; add runs with --num_devices=1, or --num_workers=1",
    "whatif-no-link": "{subject}: --link_gbit needs the rate of the present link; add --links=FILE",
    "size-memory": "The peak memory with {change} is {gib:interval 2} GiB.",
    "size-best": (
        "{fastest:count device} take least time, {cheapest:count device} least money and {both:count device} "
        "the least time x cost, with {machine:count device} in a machine."
    ),
    "size-fastest": "{fastest:count device} take least time; prices in machines.toml add the cost.",
    "size-batch": "The batch of all devices grows to {batch:,} samples; --max_global_batch limits it.",
    "size-limit": (
        "More devices would exceed {limit:,} samples in a step; smaller batches per device are not predicted."
    ),
}
