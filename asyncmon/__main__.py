"""``python -m asyncmon``: see :mod:`asyncmon.cli`."""

import sys

from asyncmon.cli import main

if __name__ == "__main__":
    sys.exit(main())
