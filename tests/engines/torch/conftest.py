from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A base and four adapters that fit it: `base`, `a`, `b`, `all` (every projection), `thin`."""
    from vctl_agent.engines.torch.device import use_threads
    from vctl_agent.engines.torch.making import make_adapter, make_base
    from vctl_agent.engines.torch.model import ATTENTION, ModelConfig

    use_threads(1)
    root = tmp_path_factory.mktemp("models")
    config = ModelConfig()
    make_base(root / "base", seed=1)
    for seed, name, rank, targets in (
        (1, "a", 8, ("q_proj", "v_proj")),
        (2, "b", 8, ("q_proj", "v_proj")),
        (3, "all", 4, ATTENTION),
        (4, "thin", 1, ("v_proj",)),
    ):
        make_adapter(root / name, base="base", config=config, seed=seed, rank=rank, targets=targets)
    return root


@pytest.fixture(scope="session")
def base(folders):
    import torch

    from vctl_agent.engines.torch.checkpoint import load_base

    return load_base(str(folders / "base"), device=torch.device("cpu"))


@pytest.fixture
def load(folders, base):
    """Load an adapter by its folder's name, under that name or another."""
    from vctl_agent.engines.torch.lora import load_adapter

    def loaded(folder, name=None):
        return load_adapter(name or folder, str(folders / folder), base=base, max_rank=64)

    return loaded
