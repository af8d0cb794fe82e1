"""What users call from Python: a plain function for each command, re-exported by `heddle`.

Each imports what it needs when it is called, so that `import heddle` stays light and works without PyTorch.
"""
