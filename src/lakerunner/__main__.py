"""`python -m lakerunner` is the command `lakerunner`."""

from lakerunner.cli import main

if __name__ == "__main__":
    main()
