"""`python -m toolspeak`: the command line."""

from .cli import main

raise SystemExit(main())
