"""Lets `python -m fairway.cli` do what `fairway` does."""

from fairway.cli import main

main()
