"""From a folder of pictures to a model that can be trusted."""
