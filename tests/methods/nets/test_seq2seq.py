"""The sequence-to-sequence placer on small tensors: attention and segments by hand, and that scoring agrees with drawing."""

import numpy as np
import pytest
import torch

from envs.problem.errors import InputError
from methods.nets import seq2seq
from methods.nets.attentive_decoder import AttentiveDecoder, DecoderWeights, _activate
from methods.nets.decisions import decide
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
        gates, joint, context = p._prepared()
        zeros, attended = torch.zeros(2, 8), p._attended(states, context)
        found = AttentiveDecoder.apply(gates[[0, 3]][:, None], *attended, h, zeros, joint, p.energy.weight[0], DecoderWeights(joint, 2))
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


def plain(p, x, allowed, actions):
    """Known decisions scored as the papers' formulas read, by torch's own cells and gradients."""
    outputs, (h, c) = p.encode(x)
    h, c, made, at = h.expand(len(actions), -1), c.expand(len(actions), -1), [], 0
    before = torch.full((len(actions),), p.devices.num_embeddings - 1)
    for states in outputs:
        for _ in range(states.shape[1]):
            energy = p.energy(torch.tanh(p.key(states) + p.query(h)[:, None])).squeeze(2)
            context = (torch.softmax(energy, dim=1)[:, :, None] * states).sum(dim=1)
            h, c = p.cell(torch.cat((p.devices(before), context), dim=1), (h, c))
            logits = p.output(torch.cat((h, context), dim=1)) / p.temperature
            logits = p.tanh_constant * torch.tanh(logits) if p.tanh_constant else logits
            made.append(decide(logits[:, None], allowed[:, at : at + 1], actions[:, at : at + 1], None))
            before, at = actions[:, at], at + 1
    return [torch.cat(parts, dim=1) for parts in zip(*made, strict=True)]


@pytest.mark.parametrize(("segment", "rows", "size"), [(0, 1, 8), (4, 2, 8), (0, 2, 8), (8, 1, 256)])  # 256: by oneDNN
def test_scores_and_their_gradients_are_those_of_the_formulas(segment, rows, size):
    torch.manual_seed(0)
    p = Seq2Seq(5, 3, hidden=size, attention=size - 2, segment=segment, tanh_constant=2.0)
    x, actions = torch.randn(rows, 10, 5), torch.randint(3, (8 if rows == 1 else rows, 10)).mul(2).remainder(3)
    actions[:, ::2] = 2
    found = []
    for made in (p(x, allowed(10), actions), plain(p, x, allowed(10), actions)):
        loss = (made[1] * torch.arange(10.0) + made[2]).sum()
        found.append([made[1], made[2], *torch.autograd.grad(loss, list(p.parameters()))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("segment", [0, 4])
def test_scoring_what_was_just_drawn_takes_its_steps_from_the_draw(segment, monkeypatch):
    p, x = placer(segment, keep=True), torch.randn(1, 10, 5)

    def learned():
        made = p(x, allowed(10), drawn.actions)
        return made, torch.autograd.grad(made.log_probs.sin().sum(), list(p.parameters()))

    def stepped(*_):
        raise AssertionError("a step was taken again")

    drawn = p(x, allowed(10), None, noise(7, 10))
    with monkeypatch.context() as patched:
        patched.setattr(seq2seq.DecoderSteps, "step", stepped)
        reused = learned()
    anew = learned()  # it serves once
    torch.testing.assert_close(reused, anew)
    p(x, allowed(10), None, noise(7, 10))
    with torch.no_grad():
        p.query.weight.mul_(2.0)
    changed = learned()
    torch.testing.assert_close(changed, learned(), rtol=0, atol=0)
    assert not torch.equal(changed[0].log_probs, anew[0].log_probs), "kept steps were taken with other weights"


def test_draws_keep_no_gradient():
    assert not placer()(torch.randn(1, 4, 5), allowed(4), None, noise(2, 4)).log_probs.requires_grad


@pytest.mark.parametrize("rows", [1, 2])
def test_the_decoder_s_gradient_is_that_of_differences(rows):
    torch.manual_seed(0)
    sizes = ((2, 4, 12), (rows, 5, 3), (rows, 5, 2), (rows, 5, 12), (2, 3), (2, 3), (14, 3), (2,))
    arguments = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in sizes]

    def apply(*given):
        return AttentiveDecoder.apply(*given, DecoderWeights(given[6], 2))

    assert torch.autograd.gradcheck(apply, arguments)
    single = [a.detach().float().requires_grad_() for a in arguments]  # where tanh is a quotient
    found, expected = ([p.cpu() for p in apply(*given)] for given in (single, arguments))
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f.double(), e, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(sum(p.sin().sum() for p in made), given) for made, given in ((found, single), (expected, arguments))]
    for f, e in zip(*gradients, strict=True):
        torch.testing.assert_close(f.double(), e, rtol=1e-4, atol=1e-5)


def test_tanh_in_single_precision():
    x = torch.linspace(-12, 12, 4001)
    active = torch.zeros(1, 4 * len(x))
    active[0, 2 * len(x) : 3 * len(x)] = x  # the gate that goes through tanh
    zeros = np.zeros((1, 4 * len(x)), np.float32)
    _activate(active.numpy(), zeros, zeros, *np.zeros((3, 1, len(x)), np.float32))
    torch.testing.assert_close(active[0, 2 * len(x) : 3 * len(x)], torch.tanh(x.double()).float(), rtol=1e-6, atol=1e-7)


def test_the_tanh_constant_bounds_the_logits():
    p, x = placer(tanh_constant=0.5, temperature=2.0).requires_grad_(False), 100 * torch.randn(1, 6, 5)
    scored = p(x, ALL.expand(1, 6, 3), torch.zeros(1, 6, dtype=torch.int64))
    assert float(scored.log_probs.min()) >= -1.0 - float(torch.log(torch.tensor(3.0)))


def test_refuses_an_odd_size():
    with pytest.raises(InputError, match="hidden size is 7"):
        Seq2Seq(5, 3, hidden=7)
