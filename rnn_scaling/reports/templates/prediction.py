"""Predictions: what more devices would do, what that assumes, and how often predictions were right."""

_TALLY = "{held:,} of {cases:count case}; the median error is {error:share}."
_OUTCOME = (
    "{subject} on {devices:,} devices: {measured:interval 12} measured, {predicted:interval 12} predicted from up to "
    "{fitted:,} devices."
)
_LINK = "{gbit:interval} Gbit/s and {latency_us:interval 1} us a message."
TEMPLATES = {
    "predict-rate": "{devices:count device} would process {rate:interval} {unit}/s.",
    "predict-speedup": "{devices:count device} would be {rate:interval 2} times as fast as the baseline of the table.",
    "predict-measured": "All these numbers of devices are measured.",
    "predict-efficiency": "The efficiency would be {efficiency:interval} %.",
    "predict-is-efficient": "No change is needed for an efficiency of {wanted:share}.",
    "predict-needs": "An efficiency of {wanted:share} needs {part} to cost {factor:.1f} times less.",
    "predict-needs-more": (
        "An efficiency of {wanted:share} needs several changes: without {part} it would be {without:share}."
    ),
    "predict-needs-unsplit": (
        "An efficiency of {wanted:share} needs {factor:.1f} times smaller losses, most of which have no known cause."
    ),
    "predict-models": "Average of {count:count model}, with the weights {models:list}.",
    "predict-no-repeats": "No repeats are known, so the interval assumes typical noise.",
    "predict-bytes": "A device exchanges {mb:interval 2} MB of gradients a step.",
    "predict-link": f"Links: {_LINK}",
    "predict-link-inside": f"Links inside a machine: {_LINK}",
    "predict-link-between": f"Links between machines: {_LINK}",
    "predict-links-unknown": "The speed of the links inside a machine is unknown.",
    "predict-links-unused": "The bytes of a step are not known, so the speed of links is not used.",
    "predict-constant-work": "The table has no batch sizes: constant work per device is assumed.",
    "predict-strong-seconds": "Predicted is the speed, 1 / seconds: constant total work is assumed.",
    "predict-weak-seconds": "Predicted is the speed, devices / seconds: constant work per device is assumed.",
    "predict-mixed-scaling": (
        "{subject}: the batch sizes on {devices:list} devices follow neither weak nor strong scaling; "
        "measure with one --batch_size or one --global_batch_size"
    ),
    "predict-mixed-table": (
        "{subject}: the batch sizes of the table follow neither weak nor strong scaling; choose another with --series"
    ),
    "predict-unknown-bytes": (
        "{subject}: --link_gbit needs the bytes of a step, which are not recorded; omit it or measure again"
    ),
    "prediction-bad-rate": "{subject}: the rate on {devices:list} devices is not above 0",
    "prediction-few-points": "{subject}: --num_devices={devices:list} is the only measured number; measure another one",
    "prediction-below-measured": (
        "{subject}: --num_devices={devices:list} is below the smallest measured number, {smallest}; name larger numbers"
    ),
    "prediction-stops-growing": (
        "{subject}: growth stops at {devices:,} devices as no model explains; measure more numbers of devices"
    ),
    "prediction-topology-unknown": (
        "Where the exchange leaves a machine beyond {largest:,} devices is unknown; the interval includes a step there."
    ),
    "prediction-far": "{devices:list} devices are more than 8 times the {largest:,} measured ones.",
    "prediction-falls": "From {devices:,} devices on, more devices are slower than the fastest measured ones.",
    "prediction-cores": (
        "Devices share {cores:count core}, which limits the rate on {devices:list} devices. "
        "For further machines, add --devices_per_machine={cores}."
    ),
    "prediction-two-points": "Only {devices:list} devices were measured; a third number makes the interval narrower.",
    "predict-hit": f"Hit: {_OUTCOME}",
    "predict-miss": f"Miss: {_OUTCOME}",
    "track-record": f"Predictions so far: 95 % intervals held in {_TALLY}",
    "track-record-class": f"On more than {{factor}} times as many devices as measured: {_TALLY}",
    "track-record-none": "There is no track record yet: no predicted number of devices has been measured since.",
}
