"""`python -m stagemesh` is the command `stagemesh`."""

from __future__ import annotations

import sys

from stagemesh.cli._main import main

if __name__ == "__main__":
    sys.exit(main())
