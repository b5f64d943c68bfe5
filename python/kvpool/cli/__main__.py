"""``python -m kvpool.cli``: the same as the command ``kvpool``."""

import sys

from kvpool.cli import main

sys.exit(main())
