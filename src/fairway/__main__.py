"""Lets `python -m fairway` do what `fairway` does."""

from fairway.cli import main

main()
