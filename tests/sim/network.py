"""How long messages take, and which of them get lost: drawn for each process by itself.

So a fault less, as the shrinker tries, changes little of what the other processes live through.
"""

from random import Random

from tests.sim.kernel import Process

_USUAL_S = 0.004


class Network:
    """The ways of one process to the store and to its neighbours."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)  # noqa: S311  a history is repeated by its seed
        self.grid_s = 0.0  # what a watch tells within this time comes at once
        self.slowness = 1.0  # how many times the usual time a message takes
        self.lag_s = 0.0  # the longest that a watch is behind, beside the message's own time
        self.loss = 0.0  # how likely a request or a reply is lost

    def message_s(self, _process: Process) -> float:
        """Return the time that one message takes."""
        return self.random.random() * _USUAL_S * self.slowness

    def stream_s(self, process: Process) -> float:
        """Return the time that a watch's message takes."""
        lag_s = self.random.random() * self.lag_s if self.lag_s else 0.0
        return self.message_s(process) + lag_s

    def loses(self, _process: Process) -> bool:
        """Whether one message is lost."""
        return bool(self.loss) and self.random.random() < self.loss
