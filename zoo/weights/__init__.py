"""Trained weights in and out: the ones that come with zoo, and other people's."""
