"""The engine behind ``zoo bench``: training steps side by side, each in its own process or by strategy."""
