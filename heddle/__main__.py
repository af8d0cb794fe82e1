"""`python -m heddle` is the same as `heddle`."""

from heddle.cli import main

main()
