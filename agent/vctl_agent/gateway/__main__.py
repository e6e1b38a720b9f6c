"""Run the gateway: ``python -m vctl_agent.gateway``."""

import sys

from vctl_agent.gateway.program import main

sys.exit(main())
