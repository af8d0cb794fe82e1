"""How to split a model, and what it will take."""
