"""Schedule and cost in, trace out, before anything is spent: `heddle.simulate`.

`replay` puts a schedule on a clock; `simulation` prices one job exactly, and `closed_form` many plans at once.
"""
