"""`python -m vctl_cli` is `vctl`."""

from vctl_cli.app import main

main()
