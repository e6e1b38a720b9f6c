import pytest
import torch

from vctl_agent.engines.torch.sampling import Sampler, Sampling, banned_tokens

pytestmark = pytest.mark.torch

LOGITS = torch.tensor([0.0, 3.0, 2.0, 3.0, 9.0])
BANNED = banned_tokens([4], 5, torch.device("cpu"))


def draws(sampling, count=200):
    sampler = Sampler(sampling, BANNED)
    return [sampler.choose(LOGITS).id for _ in range(count)]


def test_greedy_takes_the_likeliest_that_is_allowed_and_of_equals_the_first():
    assert set(draws(Sampling())) == {1}


def test_the_same_seed_draws_the_same_tokens():
    one, two = (draws(Sampling(temperature=1.0, seed=n)) for n in (7, 8))
    assert draws(Sampling(temperature=1.0, seed=7)) == one
    assert one != two
    assert set(one) == {0, 1, 2, 3}


def test_without_a_seed_two_draws_differ():
    assert draws(Sampling(temperature=1.0)) != draws(Sampling(temperature=1.0))


def test_top_p_leaves_the_fewest_tokens_that_reach_it():
    assert set(draws(Sampling(temperature=1.0, top_p=0.8, seed=1))) == {1, 3}
    assert len(set(draws(Sampling(temperature=1.0, top_p=1e-9, seed=1)))) == 1


def test_temperature_flattens():
    hot, cold = (draws(Sampling(temperature=t, seed=1)).count(0) for t in (2.0, 0.2))
    assert hot > cold == 0


def test_logprobs_are_the_models_own_whatever_the_temperature():
    expected = LOGITS[:4].log_softmax(-1)
    token = Sampler(Sampling(temperature=2.0, seed=1, top_logprobs=5), BANNED).choose(LOGITS)
    assert token.logprob == pytest.approx(float(expected[token.id]))
    assert [pair[0] for pair in token.alternatives][2:] == [2, 0]
    assert sum(torch.tensor([p for _, p in token.alternatives]).exp()) == pytest.approx(1)


def test_no_logprobs_unless_asked_for():
    token = Sampler(Sampling(), BANNED).choose(LOGITS)
    assert (token.logprob, token.alternatives) == (None, ())
