"""Predictions: what more devices would do, what that assumes, and how often predictions were right."""

_LINK = "{gbit:interval 2} Gbit/s and {latency_us:interval 1} us a message"
TEMPLATES = {
    "predict-rate": "{devices:,} devices would process {rate:interval 1} {unit}/s.",
    "predict-speedup": "{devices:,} devices would be {rate:interval 2} times as fast as the baseline of the table.",
    "predict-efficiency": "The efficiency would be {efficiency:interval 1} %.",
    "predict-is-efficient": "No change is needed for an efficiency of {wanted:share}.",
    "predict-needs": "An efficiency of {wanted:share} needs {part} to cost {factor:.1f} times less.",
    "predict-needs-more": (
        "An efficiency of {wanted:share} needs several changes: without {part} it would be {without:share}."
    ),
    "predict-needs-unknown": "What an efficiency of {wanted:share} needs is unknown.",
    "predict-models": "Weights of the models: {models:list}; {more} more.",
    "predict-models-all": "Weights of the models: {models:list}.",
    "predict-kept": "Kept in {folder}, {count:count prediction}.",
    "predict-no-repeats": "No repeats are known, so the interval assumes typical noise.",
    "predict-bytes": "A device exchanges {summed_mb:interval 2} MB of gradients a step.",
    "predict-bytes-gathered": (
        "A device exchanges {summed_mb:interval 2} MB of gradients a step, and sends {gathered_mb:interval 2} MB "
        "to every other one."
    ),
    "predict-link": f"Links between devices: {_LINK}.",
    "predict-link-inside": f"Links between {{devices:,}} devices of a machine: {_LINK}.",
    "predict-machine": "A machine has {devices:,} devices; the links inside it are unknown.",
    "predict-links-unused": "The records do not contain the bytes of a step, so the links are not used.",
    "predict-constant-work": "The table has no batch sizes: constant work per device is assumed.",
    "predict-falling-seconds": "Predicted is the speed, 1 / seconds: constant total work is assumed.",
    "predict-constant-seconds": "Predicted is the speed, devices / seconds: constant work per device is assumed.",
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
    "prediction-few-points": "{subject}: only measured on {devices:list} devices; measure another number of devices",
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
    "prediction-cores": "Devices share {cores:count core}, which limits the rate on {devices:list} devices.",
    "prediction-two-points": "Only {devices:list} devices were measured; a third number makes the interval narrower.",
    "predict-hit": (
        "{subject}, {devices:,} devices: measured {measured:interval 2} {unit}, predicted {rate:interval 2} "
        "from up to {fitted:,} devices: hit."
    ),
    "predict-miss": (
        "{subject}, {devices:,} devices: measured {measured:interval 2} {unit}, predicted {rate:interval 2} "
        "from up to {fitted:,} devices: miss."
    ),
    "track-record": (
        "95 % intervals held in {held:,} of {cases:count case}; the median error of these predictions is {error:share}."
    ),
    "track-record-none": "There is no track record yet: no predicted number of devices has been measured since.",
}
