"""The metrics that `compare` judges, for --help, which does not load NumPy."""

RATE = "items_per_second"
# Metrics of which more is faster. A share of the peak is not among them, because it
# also falls if the peak is measured again.
CHOICES = (RATE, "speedup", "efficiency", "flops_per_second")
