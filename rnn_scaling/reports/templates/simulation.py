"""Simulated runs: how they were calibrated and checked."""

TEMPLATES = {
    "simulation-no-base": "{subject}: the step time of one device is unknown; measure --num_devices=1 too",
    "simulation-unknown-exchange": (
        "{subject}: the bytes or the links of the exchange are unknown; add --exchange_mb=... and --link_gbit=..."
    ),
    "simulation-not-calibrated": "No exchange was measured, so its time is computed from the bytes and the links.",
    "simulation-overlap": (
        "Fitted on {devices} devices: the exchange starts {overlap_ms:.3g} ms before the computation of a step ends."
    ),
    "simulation-slower": (
        "Fitted on {devices} devices: the exchange takes {factor:.2f} times as long as expected on these links."
    ),
    "simulation-fitted": (
        "Fitted on {devices} devices: the exchange takes {ms:.3g} ms. The same links are assumed for more devices."
    ),
    "simulation-error": (
        "Simulated rates contain no uncertainty of the links or of the model. "
        "Their standard error over random numbers is {error:share} at most."
    ),
    "simulation-check": (
        "{devices:,} devices: {measured:interval 1} {unit}/s measured, {simulated:interval 1} simulated "
        "({percent:+.1f} %)."
    ),
}
