"""AdamW with full-precision master weights, clipping by the global norm, and dynamic loss scaling for fp16."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from heddle.spec.job import Train


class LossScale:
    """Dynamic loss scaling: halve when a gradient overflows, double after a long quiet stretch."""

    GROWTH_INTERVAL = 2000

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.value = 2.0**16 if enabled else 1.0
        self.quiet = 0  # steps since the last overflow or growth

    def update(self, overflow: bool) -> None:
        """Learn from one step."""
        if not self.enabled:
            return
        self.quiet = 0 if overflow else self.quiet + 1
        if overflow:
            self.value = max(1.0, self.value / 2)
        elif self.quiet == self.GROWTH_INTERVAL:
            self.value, self.quiet = self.value * 2, 0


class Optimizer:
    """AdamW over named parameters.

    Parameters in bf16 or fp16 get an fp32 master, and their gradients are added up in fp32 as the microbatches
    produce them, so that neither small updates nor small gradients are rounded away.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], train: Train) -> None:
        self.train = train
        self.parameters = parameters
        self.masters = {name: _master(parameter) for name, parameter in parameters.items()}
        # Norms and biases are left out of weight decay, as in GPT-2 and all its heirs.
        decayed = [master for master in self.masters.values() if master.dim() > 1]
        others = [master for master in self.masters.values() if master.dim() <= 1]
        self.adam = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": train.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=train.learning_rate,
            betas=(train.beta1, train.beta2),
            eps=train.epsilon,
            fused=True,
        )
        self.scale = LossScale(train.precision == "fp16")

    def step(self, rate: float) -> float:
        """Clip, update, clear the gradients; give the gradient norm before clipping.

        A norm that is not finite changes no weight: under fp16 the loss scale is lowered, otherwise the caller
        sees the norm and decides.
        """
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))) / self.scale.value
        finite = math.isfinite(norm)
        if finite:
            factor = 1 / self.scale.value
            if self.train.clip and norm > self.train.clip:
                factor *= self.train.clip / norm
            if factor != 1:
                torch._foreach_mul_(gradients, factor)
            for group in self.adam.param_groups:
                group["lr"] = rate
            self.adam.step()
            self._copy_masters_back()
        self.scale.update(overflow=not finite)
        self.adam.zero_grad(set_to_none=True)
        return norm

    @torch.no_grad()
    def _copy_masters_back(self) -> None:
        for name, parameter in self.parameters.items():
            if self.masters[name] is not parameter:
                parameter.copy_(self.masters[name])

    def state(self) -> dict[str, Tensor]:
        """Everything AdamW remembers, under the parameters' own names."""
        tensors: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            for key, value in self.adam.state[master].items():
                tensors[f"{name}:{key}"] = value
            if master is not self.parameters[name]:
                tensors[f"{name}:master"] = master.detach()
        return tensors

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        for full_name, value in tensors.items():
            name, _, key = full_name.rpartition(":")
            master = self.masters[name]
            if key == "master":
                master.copy_(value)
            else:
                self.adam.state[master][key] = value.to(master.device) if value.dim() else value


def _master(parameter: nn.Parameter) -> Tensor:
    """The fp32 tensor that is optimized: the parameter itself, or its master, which collects its gradients."""
    if parameter.dtype == torch.float32:
        return parameter
    master = parameter.detach().float().requires_grad_()

    def collect(low: Tensor) -> None:
        assert low.grad is not None
        if master.grad is None:
            master.grad = low.grad.float()
        else:
            master.grad += low.grad
        low.grad = None

    parameter.register_post_accumulate_grad_hook(collect)
    return master
