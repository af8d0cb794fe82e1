"""Graphs and kernels of any network: pipelines, placements, tiles, lanes."""
