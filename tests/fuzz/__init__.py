"""Odd inputs, thousands of them: every command answers with a result or with a message, never with a traceback.

`seeds` makes a folder of valid files, `mutate` spoils one of them, `cases` says which commands read it, `harness` runs
one and judges the answer. The same seed makes the same inputs.
"""
