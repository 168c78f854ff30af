"""Run the command line as ``python -m refhmc``."""

import sys

from refhmc.cli.main import main

sys.exit(main())
