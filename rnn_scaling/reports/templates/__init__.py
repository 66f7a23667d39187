"""One file per topic, each with TEMPLATES: kind of statement -> format string, as `reports/wording.py` reads them."""
