"""`python -m vctl_cli` is `vctl`."""

from vctl_cli.start import main

main()
