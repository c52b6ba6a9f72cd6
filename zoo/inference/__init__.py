"""Networks in service: folding, prediction, export."""
