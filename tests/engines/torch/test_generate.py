"""An answer with the prefix cache is the answer without it: the same tokens, the same bits."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from vctl_agent.engines.torch.checkpoint import Base
from vctl_agent.engines.torch.generate import Engine, Generation, Order, answer
from vctl_agent.engines.torch.lora import Adapter, load_adapter
from vctl_agent.engines.torch.sampling import Sampling
from vctl_agent.engines.torch.tokenizer import EOS, encode

pytestmark = pytest.mark.torch


def order(prompt, max_tokens=5, **more):
    ids = encode(prompt) if isinstance(prompt, str) else prompt
    return Order(tuple(ids), max_tokens, Sampling(top_logprobs=2), **more)


def tokens(pieces):
    return [piece.token for piece in pieces]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize("adapter", [None, "a"])
def test_a_hit_gives_the_bits_of_a_miss(base, load, length, adapter):
    adapter = adapter and load(adapter)
    asked = order([65 + n % 26 for n in range(length)])
    expected = tokens(answer(Engine(base, cache_blocks=0), asked, adapter=adapter))
    engine = Engine(base, cache_blocks=64)
    miss, hit = (answer(engine, asked, adapter=adapter) for _ in range(2))
    assert tokens(miss) == tokens(hit) == expected
    assert miss[0].cached_tokens == 0
    assert hit[0].cached_tokens == (length - 1) // 16 * 16


def test_one_prompt_extends_another(base):
    engine = Engine(base, cache_blocks=64)
    answer(engine, order("x" * 40), adapter=None)
    longer = order("x" * 40 + "y" * 40)
    pieces = answer(engine, longer, adapter=None)
    assert pieces[0].cached_tokens == 32
    assert tokens(pieces) == tokens(answer(Engine(base, cache_blocks=0), longer, adapter=None))


def test_a_salt_and_another_adapter_share_nothing(base, load):
    engine = Engine(base, cache_blocks=64)
    a = load("a")
    asked = [
        (order("x" * 60), a),
        (order("x" * 60, cache_salt="s"), a),
        (order("x" * 60), load("b")),
        (order("x" * 60), load("a", "renamed")),
        (order("x" * 60), None),
    ]
    assert [answer(engine, o, adapter=who)[0].cached_tokens for o, who in asked] == [0] * 5
    assert answer(engine, order("x" * 60), adapter=load("a"))[0].cached_tokens == 48


def test_other_bytes_under_the_same_name_and_path_share_nothing(base, folders, tmp_path):
    engine, path, said = Engine(base, cache_blocks=64), tmp_path / "slot", []
    for source in ("a", "b"):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folders / source, path)
        adapter = load_adapter("one", str(path), base=base, max_rank=64)
        pieces = answer(engine, order("x" * 60), adapter=adapter)
        uncached = answer(Engine(base, cache_blocks=0), order("x" * 60), adapter=adapter)
        assert (pieces[0].cached_tokens, tokens(pieces)) == (0, tokens(uncached))
        said.append(tokens(pieces))
    assert said[0] != said[1]


def test_what_began_before_the_cache_was_emptied_stores_nothing(base):
    engine = Engine(base, cache_blocks=64)
    began = Generation(engine, order(list(range(65, 115))), adapter=None)
    began.step()
    assert engine.cache is not None
    engine.cache.clear()
    while began.step() is None:
        pass
    assert engine.cache.counts().blocks == 0
    answer(engine, order(list(range(65, 115))), adapter=None)
    assert engine.cache.counts().blocks == 3


def test_a_prompt_whose_beginning_was_evicted_is_computed_again(base):
    engine = Engine(base, cache_blocks=2)
    expected = tokens(answer(Engine(base, cache_blocks=0), order("x" * 60), adapter=None))
    answer(engine, order("x" * 60), adapter=None)
    assert answer(engine, order("x" * 60), adapter=None)[0].cached_tokens == 32
    answer(engine, order("y" * 60), adapter=None)
    again = answer(engine, order("x" * 60), adapter=None)
    assert (again[0].cached_tokens, tokens(again)) == (0, expected)
    assert engine.cache is not None
    assert engine.cache.counts().blocks == 2


def test_max_tokens_and_stop_strings_end_an_answer(base):
    engine = Engine(base, cache_blocks=0)
    pieces = answer(engine, order("Hello", 12), adapter=None)
    text = "".join(piece.text for piece in pieces)
    assert (len(pieces), pieces[-1].finish_reason) == (12, "length")
    stopped = answer(engine, order("Hello", 12, stop=(text[4:6],)), adapter=None)
    assert "".join(piece.text for piece in stopped) == text[: text.index(text[4:6])]
    assert stopped[-1].finish_reason == "stop"


def test_the_end_token_ends_an_answer_unless_told_otherwise(base):
    engine = Engine(base, cache_blocks=0)
    engine.banned = engine.banned.new_full(engine.banned.shape, float("-inf"))
    engine.banned[EOS] = 0  # a model that only ever ends
    pieces = answer(engine, order("Hello"), adapter=None)
    assert [(piece.token.id, piece.text, piece.finish_reason) for piece in pieces] == [
        (EOS, "", "stop")
    ]
    assert len(answer(engine, order("Hello", ignore_eos=True), adapter=None)) == 5


# Few, so that requests meet each other's blocks: whole, in part, and just short of a block.
PROMPTS = st.sampled_from(
    [encode("x" * 15), encode("x" * 31), encode("x" * 64), encode("x" * 40 + "y"), encode("y" * 40)]
)


class Switches(RuleBasedStateMachine):
    """Adapters come, go and change their bytes under requests; a tiny cache always evicts."""

    folders: Path  # set by the test, as hypothesis makes the machines
    base: Base

    @initialize(blocks=st.integers(1, 12))
    def start(self, blocks):
        self.engine = Engine(self.base, cache_blocks=blocks)
        self.loaded: dict[str, Adapter | None] = {"base": None}
        self.running = []

    @rule(
        name=st.sampled_from(["one", "two"]),
        source=st.sampled_from(["a", "b", "all"]),
        slot=st.sampled_from(["slot1", "slot2"]),
    )
    def load(self, name, source, slot):
        path = self.folders / "slots" / slot
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.folders / source, path)
        self.loaded[name] = load_adapter(name, str(path), base=self.base, max_rank=64)

    @rule(name=st.sampled_from(["one", "two"]))
    def unload(self, name):
        self.loaded.pop(name, None)

    @rule(pick=st.randoms(use_true_random=False), prompt=PROMPTS, salt=st.sampled_from(["", "s"]))
    def ask(self, pick, prompt, salt):
        adapter = self.loaded[pick.choice(sorted(self.loaded))]
        asked = order(prompt, cache_salt=salt)
        generation = Generation(self.engine, asked, adapter=adapter)
        self.running.append((generation, asked, adapter, []))

    @precondition(lambda self: self.running)
    @rule(pick=st.randoms(use_true_random=False), steps=st.integers(1, 12))
    def work(self, pick, steps):
        running = pick.choice(self.running)
        for _ in range(steps):
            if self.advance(running):
                break

    def advance(self, running):
        generation, asked, adapter, pieces = running
        piece = generation.step()
        if piece is None:
            return False
        pieces.append(piece)
        if piece.finish_reason is None:
            return False
        uncached = answer(Engine(self.base, cache_blocks=0), asked, adapter=adapter)
        assert tokens(uncached) == tokens(pieces)
        self.running.remove(running)
        return True

    def teardown(self):
        for running in [*self.running] if hasattr(self, "running") else []:
            while not self.advance(running):
                pass


def test_switches_never_mix_releases(base, folders):
    Switches.base, Switches.folders = base, folders
    machine = Switches.TestCase
    machine.settings = settings(
        max_examples=60,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()
