"""`python -m turnwise.cli`."""

from . import main

main()
