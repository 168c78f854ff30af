"""``python -m refhmc`` is the command ``refhmc``."""

import sys

from refhmc.cli.main import main

sys.exit(main())
