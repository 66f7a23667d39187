"""Predictions: what more devices and changes would do, what that assumes, and how often predictions were right."""

_OUTCOME = (
    "{subject} on {devices:,} devices: {measured:interval 12} measured, {predicted:interval 12} predicted from up to "
    "{fitted:,} devices."
)
_LINK = "{gbit:interval} Gbit/s and {latency_us:interval 1} us per message."
TEMPLATES = {
    "predict-rate": "{devices:count device} would process {rate:interval} {unit}/s.",
    "predict-speedup": "{devices:count device} would be {rate:interval 2} times as fast as the baseline of the table.",
    "predict-measured": "All these numbers of devices are measured.",
    "predict-efficiency": "The efficiency would be {efficiency:interval} %.",
    "predict-is-efficient": "No change is needed for an efficiency of {wanted:share}.",
    "predict-needs": (
        "For an efficiency of {wanted:share}, losses to {part} would have to be {factor:,.1f} times smaller."
    ),
    "predict-needs-more": (
        "For an efficiency of {wanted:share}, one change is not enough: "
        "without losses to {part} it would be {without:share}."
    ),
    "predict-needs-unsplit": (
        "For an efficiency of {wanted:share}, losses would have to be {factor:,.1f} times smaller. "
        "Most of them have no known cause."
    ),
    "predict-models": "The prediction averages {count:count model}, mostly {models:list}.",
    "predict-no-repeats": "No repeats are known, so the interval assumes typical noise.",
    "predict-bytes": "A device exchanges {mb:interval 2} MB of gradients per step.",
    "predict-link": f"Links: {_LINK}",
    "predict-link-inside": f"Links inside a machine: {_LINK}",
    "predict-link-between": f"Links between machines: {_LINK}",
    "predict-links-unknown": "The speed of the links inside a machine is unknown.",
    "predict-links-unused": "The bytes of a step are unknown, so the speed of the links is not used.",
    "predict-constant-work": "The table has no batch sizes, so constant work per device is assumed.",
    "predict-strong-seconds": "The rate is 1 / seconds, which assumes constant total work.",
    "predict-weak-seconds": "The rate is devices / seconds, which assumes constant work per device.",
    "predict-mixed-table": (
        "{subject}: the batch sizes of the table follow neither weak nor strong scaling; "
        "choose another series with --series=TEXT"
    ),
    "predict-unknown-bytes": (
        "{subject}: --link_gbit needs the bytes of a step, which are not recorded; omit it or measure again"
    ),
    "prediction-bad-rate": "{subject}: the rate on {devices:list} devices is not above 0",
    "prediction-few-points": (
        "{subject}: only --num_devices={devices:list} is measured with these batch sizes; measure another number"
    ),
    "prediction-below-measured": (
        "{subject}: --num_devices={devices:list} is below the smallest measured number, {smallest}; name larger numbers"
    ),
    "prediction-stops-growing": (
        "{subject}: growth stops at {devices:,} devices, and no model explains why; measure further numbers of devices"
    ),
    "prediction-topology-unknown": (
        "Whether the exchange leaves a machine beyond {largest:,} devices is unknown, so the interval covers both; "
        "--devices_per_machine=N states it."
    ),
    "prediction-crossing-unknown": (
        "What the exchange costs beyond a machine or socket is unknown, so the interval includes slower links; "
        "--link_gbit=X states them."
    ),
    "prediction-far": "{devices:list} devices are more than 8 times the {largest:,} measured ones.",
    "prediction-falls": "From {devices:,} devices on, the rate is lower than the highest measured one.",
    "prediction-cores": (
        "Devices share {cores:count core}, which limits the rate on {devices:list} devices. "
        "For further machines, add --devices_per_machine={cores}."
    ),
    "prediction-two-points": "Only {devices:list} devices were measured; a third number makes the interval narrower.",
    "predict-hit": f"Hit: {_OUTCOME}",
    "predict-miss": f"Miss: {_OUTCOME}",
    "track-record": (
        "Predictions so far: 95 % intervals held in {held:,} of {cases:count case}; the median error is {error:share}."
    ),
    "track-record-none": "There is no track record yet: no predicted number of devices has been measured since.",
    "whatif-parts": "{subject}, {devices:count device}. The time of a step is {parts:list}.",
    "whatif-best": "{name} helps most: {gain:interval 2} times the rate.",
    "whatif-tie": "{name} gains most, {gain:interval 2} times the rate, but {names:list} may gain as much.",
    "whatif-none": "No change gains more than 0.5 %.",
    "whatif-batch": (
        "A second measured batch size shows how a step grows. A larger batch may need more samples to learn as much, "
        "which is not part of the gain."
    ),
    "whatif-batch-unknown": (
        "A step may grow with its batch fully or not at all; runs with a second --batch_size show it. "
        "A larger batch may need more samples to learn as much."
    ),
    "whatif-no-independent": (
        "Contention was not measured on {devices:count device}, so it may be exchange; runs with "
        "--variable_update=independent measure it."
    ),
    "whatif-overlap": "No trace shows how much of the exchange overlaps with computation: 0 to 40 % is assumed.",
    "whatif-no-baseline": "{subject}: no run on one device; add runs with --num_devices=1, or --num_workers=1",
    "whatif-link-left-out": "The present link is unknown, so link_gbit is left out; --links=FILE gives it.",
    "whatif-no-link": "{subject}: --link_gbit needs the rate of the present link; add --links=FILE",
    "size-memory": "The peak memory with {change} is {gib:interval 2} GiB.",
    "size-best": (
        "Least time on {fastest:count device}, least cost on {cheapest:count device} and least time x cost on "
        "{both:count device}, with {machine:count device} in a machine."
    ),
    "size-fastest": "Least time on {fastest:count device}. Prices in machines.toml add the cost.",
    "size-batch": "The batch of all devices is assumed to grow to {batch:,} samples; --max_global_batch limits it.",
    "size-limit": (
        "More devices would exceed {limit:,} samples in a step; smaller batches per device are not predicted."
    ),
}
