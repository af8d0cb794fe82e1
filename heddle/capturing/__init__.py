"""Any module as a graph of operators, placed on devices, and run there: `heddle.capture` and `heddle.place`."""
