"""Weighted DAGs on integer arrays, their down-sets ("ideals") and linear extensions. No PyTorch."""

from heddle.graph.dag import Dag
from heddle.graph.ideals import Ideals, TooManyIdeals, chain, enumerate_ideals, linear_extension
from heddle.graph.merge import components, contract

__all__ = [
    "Dag",
    "Ideals",
    "TooManyIdeals",
    "chain",
    "components",
    "contract",
    "enumerate_ideals",
    "linear_extension",
]
