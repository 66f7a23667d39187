"""What a reader must know of the machine before trusting the numbers."""

TEMPLATES = {
    "gpus-shared": (
        "In {runs:count run} of {total} several towers share one real GPU (logical devices): this shows the cost of "
        "the software, not how hardware scales."
    ),
    "cpu-devices-only": (
        "The devices are cores of one CPU: they share its caches, memory and clock, so this is not how separate "
        "machines or GPUs scale."
    ),
    "cpu-devices": (
        "In {runs:count run} of {total} the devices are cores of one CPU: they share its caches, memory and clock, so "
        "this is not how separate machines or GPUs scale."
    ),
    "too-few-cores": "In {runs:count run} of {total} the devices needed more CPU cores than the machine has.",
    "gpus-throttled": "In {runs:count run} of {total} the driver held the GPUs' clocks down.",
    "workers-on-one-host": (
        "In {runs:count run} of {total} several workers ran on one host: they share its memory, caches and clock and "
        "use no network, so this is not how separate machines scale."
    ),
    "network-simulated": "The network between the workers was made for the runs, on one machine: {subject}.",
    "window-off": (
        "In {runs:count run} of {total} the measured batches of all ranks take up to {most:.1%} more or less time than "
        "rank 0's clock shows: rates are no more accurate than that."
    ),
    "clocks": "In {runs:count run} of {total} (numbers of the first): {subject}.",
    "far-links": (
        "In {runs:count run} of {total} the GPUs {subject} exchanged, whose farthest link is {farthest}; the links of "
        "{devices} are nearer ({worst} at most). CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={devices} should "
        "exchange faster."
    ),
}
