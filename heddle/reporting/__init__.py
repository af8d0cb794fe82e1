"""The page that shows a plan before and a run after: `heddle report` makes it, and no PyTorch is needed."""
