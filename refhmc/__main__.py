"""``python -m refhmc`` is the command ``refhmc``."""

import sys

from refhmc.cli import main

sys.exit(main())
