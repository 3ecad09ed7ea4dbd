"""`python -m natgrad`: the command `natgrad`."""

import sys

from natgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
