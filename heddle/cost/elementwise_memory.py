"""Bytes that a layer keeps which recomputes all but its products and its attention (`heddle.parallel.memory`)."""

from __future__ import annotations

import numpy as np

from heddle.cost import adapters, latent
from heddle.cost.attention_memory import context_core, score_sums, window_inside
from heddle.cost.work import Work
from heddle.schedule.rule import Column


def kept(work: Work) -> Column:
    """What one microbatch leaves: the layer's input, and what its products and its attention made."""
    e, tokens, t = work.element, work.tokens, work.tensor
    outside = np.where(work.sequence_parallel, t, 1)
    # what is added to the residual stream is kept where a norm reads it, or the sum
    stream = tokens * work.hidden * e / outside * (1 + work.branch_outputs)
    wide = (1 + work.gated) * (work.ffn + work.routed * (work.imbalance - 1))
    found = stream + tokens / t * e * (_projected(work) + wide) + _attention(work)
    if np.any(work.frozen):
        found = found + adapters.made(work)
    if np.any(work.experts):
        rows = work.imbalance * work.top_k * work.hidden * e  # as experts made them
        found = found + np.where(work.experts > 0, work.routed_tokens * (rows + 4 * work.experts), 0.0)
        found = found + work.shared_gate * tokens * (work.hidden + 1) * e
    return found


def _projected(work: Work) -> Column:
    """Numbers of a token that the products before attention make, on all tensor ranks together."""
    joint = (work.heads + 2 * work.kv_heads) * work.head_size
    if not np.any(work.kv_latent):
        return joint
    outside = np.where(work.sequence_parallel, work.tensor, 1)
    own = latent.latents(work) * work.tensor / outside  # which every rank makes
    through = own + work.heads * (2 * work.head_size - work.turning + work.values)
    return np.where(work.kv_latent, through, joint)


def _attention(work: Work) -> Column:
    """What attention makes and keeps beside what it is given: its output, and what its backward asks for."""
    e, t, tokens = work.element, work.tensor, work.tokens
    query, key = work.heads * work.head_size, work.kv_heads * work.head_size
    output = tokens / t * query * e
    rows = tokens * work.heads / t
    inside = np.where(work.fused, rows * 4, rows * work.sequence * (e + work.dropout * (e + 1)))
    if np.any(work.scored):
        repeated = np.where(work.kv_heads < work.heads, 2 * query, 0.0)
        inside = score_sums(work) + tokens / t * e * repeated
    elif np.any(windowed := (work.window_block > 0) & (work.window < work.sequence)):
        inside = np.where(windowed, window_inside(work, query, key), inside)
    if np.any(shared := (work.context > 1) & (work.context_parts > 0)):
        inside = np.where(shared, context_core(work, query, key), inside)
    return output + inside
