"""A second transformer, written for clarity alone, to hold the real one against.

Batch first, one head at a time, softmax written out, weights taken by name. It shares no code with the package.
"""

from __future__ import annotations

import math

import torch


def norm(spec, w, name, x):
    if spec.norm == "rmsnorm":
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + spec.norm_epsilon) * w[f"{name}.weight"]
    x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + spec.norm_epsilon)
    return x * w[f"{name}.weight"] + w.get(f"{name}.bias", 0)


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def turn(spec, x):
    """Rotary positions by complex numbers, for x [batch, sequence, head size]."""
    half = spec.head_size // 2
    angle = torch.arange(x.shape[1])[:, None] / spec.rope_theta ** (torch.arange(half) / half)[None]
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


def attention(spec, w, name, x):
    size, group = spec.head_size, spec.group
    rows = linear(w, f"{name}.qkv", x).unflatten(-1, (spec.kv_heads, group + 2, size))
    s = x.shape[1]
    back = torch.arange(s)[:, None] - torch.arange(s)[None]
    hidden = (back < 0) | (back >= (spec.window or s))
    heads = []
    for g in range(spec.kv_heads):
        k, v = rows[:, :, g, group], rows[:, :, g, group + 1]
        if spec.qk_norm:
            k = norm_rms(spec, w[f"{name}.k_norm.weight"], k)
        k = turn(spec, k) if spec.positions == "rotary" else k
        for i in range(group):
            q = rows[:, :, g, i]
            if spec.qk_norm:
                q = norm_rms(spec, w[f"{name}.q_norm.weight"], q)
            q = turn(spec, q) if spec.positions == "rotary" else q
            score = (q @ k.transpose(1, 2) / math.sqrt(size)).masked_fill(hidden, -math.inf)
            weight = torch.exp(score - score.max(-1, keepdim=True).values)
            heads.append(weight / weight.sum(-1, keepdim=True) @ v)
    return linear(w, f"{name}.out", torch.cat(heads, -1))


def norm_rms(spec, weight, x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + spec.norm_epsilon) * weight


def mlp(spec, w, name, x):
    up = linear(w, f"{name}.up", x)
    if spec.activation == "swiglu":
        gate = linear(w, f"{name}.gate", x)
        up = gate / (1 + torch.exp(-gate)) * up
    else:
        up = up / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
    return linear(w, f"{name}.down", up)


def logits(spec, w, ids):
    """Logits [batch, sequence, vocab] of token ids [batch, sequence], from weights by global name."""
    x = w["embed.tokens.weight"][ids]
    if spec.positions == "learned":
        x = x + w["embed.positions.weight"][: ids.shape[1]]
    for i in range(spec.layers):
        x = x + attention(spec, w, f"layers.{i}.attention", norm(spec, w, f"layers.{i}.attention_norm", x))
        x = x + mlp(spec, w, f"layers.{i}.mlp", norm(spec, w, f"layers.{i}.mlp_norm", x))
    head = w["embed.tokens.weight" if spec.tied else "head.weight"]
    return norm(spec, w, "norm", x) @ head.T
