"""The metrics that `compare` judges. --help shows them, and does not wait for NumPy."""

RATE = "items_per_second"
# More of each is faster. A share of the peak also falls when the peak is measured anew.
CHOICES = (RATE, "speedup", "efficiency", "flops_per_second")
