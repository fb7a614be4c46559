"""The sequence-to-sequence placer on small tensors: attention and segments by hand, and that scoring agrees with drawing."""

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from methods.nets.attentive_decoder import AttentiveDecoder, _compare
from methods.nets.seq2seq import Seq2Seq

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
        gates, attended, weights = p._prepared(states)
        zeros = torch.zeros(2, 8)
        found = AttentiveDecoder.apply(gates[[0, 3]][:, None], *attended, h, zeros, *weights)
        torch.testing.assert_close(found[1][b, 0], expected)
        state = p.cell(torch.cat((p.devices(torch.tensor([0, 3])), found[1][:, 0]), dim=1), (h, zeros))
        torch.testing.assert_close((found[0][:, 0], found[2]), state)


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


@pytest.mark.parametrize("segment", [0, 4])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_gradient_of_scoring_is_that_of_drawing_the_same(segment, rows):
    x = torch.randn(rows, 10, 5, generator=torch.Generator().manual_seed(2))
    drawn, gradients = noise(2, 10), []
    for scores in (False, True):
        p = placer(segment, tanh_constant=2.0)
        made = p(x, allowed(10), None, drawn)
        made = p(x, allowed(10), made.actions) if scores else made
        (made.log_probs * torch.arange(20.0).reshape(2, 10) + made.entropy).sum().backward()
        gradients.append([q.grad for q in p.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 2])
def test_the_decoder_s_gradient_is_that_of_differences(rows):
    torch.manual_seed(0)
    sizes = ((2, 4, 12), (rows, 5, 3), (rows, 5, 2), (rows, 5, 12), (2, 3), (2, 3), (12, 3), (2, 3), (2,))
    arguments = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in sizes]
    assert torch.autograd.gradcheck(AttentiveDecoder.apply, arguments)
    single = [a.detach().float().requires_grad_() for a in arguments]  # where tanh is a quotient
    found, expected = ([p.cpu() for p in AttentiveDecoder.apply(*given)] for given in (single, arguments))
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f.double(), e, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(sum(p.sin().sum() for p in made), given) for made, given in ((found, single), (expected, arguments))]
    for f, e in zip(*gradients, strict=True):
        torch.testing.assert_close(f.double(), e, rtol=1e-4, atol=1e-5)


def test_tanh_in_single_precision():
    x = torch.linspace(-12, 12, 4001)
    found = torch.empty(len(x), 1)
    _compare(np.zeros((1, 1, 1), np.float32), x[:, None].numpy(), np.ones(1, np.float32), found.numpy())
    torch.testing.assert_close(found[:, 0], torch.tanh(x.double()).float(), rtol=1e-6, atol=1e-7)


def test_the_tanh_constant_bounds_the_logits():
    p, x = placer(tanh_constant=0.5, temperature=2.0).requires_grad_(False), 100 * torch.randn(1, 6, 5)
    scored = p(x, ALL.expand(1, 6, 3), torch.zeros(1, 6, dtype=torch.int64))
    assert float(scored.log_probs.min()) >= -1.0 - float(torch.log(torch.tensor(3.0)))


def test_refuses_an_odd_size():
    with pytest.raises(InputError, match="hidden size is 7"):
        Seq2Seq(5, 3, hidden=7)
