"""The sequence-to-sequence placer on small tensors: attention and segments by hand, and that scoring agrees with drawing."""

import pytest
import torch

import methods.common.seq2seq as module
from envs.errors import InputError
from methods.common.seq2seq import Seq2Seq

ALL = torch.ones(1, 1, 3, dtype=torch.bool)


def placer(segment=0, seed=0, **more):
    torch.manual_seed(seed)
    return Seq2Seq(5, 3, hidden=8, attention=6, segment=segment, **more)


def noise(batch, n, seed=1):
    u = torch.rand(batch, n, 3, generator=torch.Generator().manual_seed(seed))
    return -torch.log(-torch.log(u))


def allowed(n):
    mask = torch.ones(1, n, 3, dtype=torch.bool)
    mask[0, ::2, 1] = False
    return mask


def test_attention_is_that_of_bahdanau():
    p = placer()
    states, h = torch.randn(1, 4, 8), torch.randn(2, 8)
    for b in range(2):
        energy = torch.stack([p.energy.weight[0] @ torch.tanh(p.query.weight @ h[b] + p.key(states[0, j])) for j in range(4)])
        expected = (torch.softmax(energy, dim=0)[:, None] * states[0]).sum(dim=0)
        torch.testing.assert_close(p.attend(h, states, p.key(states))[b], expected)


@pytest.mark.parametrize("segment", [0, 4])
def test_scoring_a_draw_gives_the_probabilities_it_was_drawn_with(segment):
    p, x = placer(segment), torch.randn(1, 10, 5)
    with torch.no_grad():
        drawn = p(x, allowed(10), None, noise(7, 10))
    scored = p(x, allowed(10), drawn.actions)
    torch.testing.assert_close(scored.log_probs, drawn.log_probs)
    torch.testing.assert_close(scored.entropy, drawn.entropy)
    assert drawn.actions.shape == (7, 10)
    assert (drawn.actions[:, ::2] != 1).all(), "a masked device was drawn"


def test_probabilities_of_all_sequences_add_up_to_one():
    p, x = placer(2), torch.randn(1, 3, 5)
    sequences = torch.cartesian_prod(*(torch.arange(3),) * 3)
    with torch.no_grad():
        scored = p(x, ALL.expand(1, 3, 3), sequences)
    assert float(scored.log_probs.sum(dim=1).exp().sum()) == pytest.approx(1.0, abs=1e-5)


def test_a_segment_begins_where_the_encoder_ended_and_attends_to_itself_alone():
    p, x = placer(4), torch.randn(1, 10, 5)
    outputs, (h, c) = p.encode(x)
    first, state = p.encoder(x[:, :4])
    second, state2 = p.encoder(x[:, 4:8], state)
    third, _ = p.encoder(x[:, 8:], state2)
    for found, expected in zip(outputs, (first, second, third), strict=True):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(h, torch.cat((state[0][0], state[0][1]), dim=1))
    torch.testing.assert_close(c, torch.cat((state[1][0], state[1][1]), dim=1))


def test_the_decoder_recalls_the_segment_before_but_never_reads_ahead():
    p = placer(4)
    x, given = torch.randn(1, 8, 5), torch.zeros(1, 8, dtype=torch.int64)
    other = given.clone()
    other[0, 3] = 2
    later = x.clone()
    later[0, 6] += 1.0
    score = lambda values, actions: p(values, ALL.expand(1, 8, 3), actions).entropy  # noqa: E731
    base = score(x, given)
    changed = score(x, other)
    torch.testing.assert_close(changed[0, :4], base[0, :4])
    assert (changed[0, 4:] != base[0, 4:]).all(), "a decision of the last segment does not reach the next"
    torch.testing.assert_close(score(later, given)[0, :4], base[0, :4])  # segments are placed before later ones are read


def test_one_segment_is_the_whole_sequence():
    x, drawn = torch.randn(1, 6, 5), noise(2, 6)
    whole, single = placer(0), placer(6)
    a, b = whole(x, allowed(6), None, drawn), single(x, allowed(6), None, drawn)
    assert torch.equal(a.actions, b.actions)
    assert torch.equal(a.log_probs, b.log_probs)


def test_computing_again_does_not_change_the_gradient(monkeypatch):
    x, actions = torch.randn(1, 10, 5), torch.randint(0, 3, (2, 10), generator=torch.Generator().manual_seed(0))
    gradients = []
    for block in (32, 3):
        monkeypatch.setattr(module, "BLOCK", block)
        p = placer(5)
        p(x, ALL.expand(1, 10, 3), actions).log_probs.sum().backward()
        gradients.append([q.grad for q in p.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


def test_the_tanh_constant_bounds_the_logits():
    p, x = placer(tanh_constant=0.5, temperature=2.0).requires_grad_(False), 100 * torch.randn(1, 6, 5)
    scored = p(x, ALL.expand(1, 6, 3), torch.zeros(1, 6, dtype=torch.int64))
    assert float(scored.log_probs.min()) >= -1.0 - float(torch.log(torch.tensor(3.0)))


def test_refuses_an_odd_size():
    with pytest.raises(InputError, match="hidden size is 7"):
        Seq2Seq(5, 3, hidden=7)
