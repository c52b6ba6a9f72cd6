"""Reference networks, one a file, each a scoped function registered under its name."""
