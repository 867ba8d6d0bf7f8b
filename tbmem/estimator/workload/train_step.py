"""Runs training steps on fake or real tensors, and reports phases and the category of tensors to an observer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from tbmem.errors import UsageError
from tbmem.estimator.workload.layers import transformer_layers
from tbmem.estimator.workload.optimizers import HostOptimizer, make_optimizer
from tbmem.estimator.workload.workload import Workload, dtype_of
from tbmem.model.category import Category, Phase
from tbmem.model.job import Job


class Observer(Protocol):
    """Receives what a training run reports: beginnings of steps and phases, categories and modules of tensors."""

    def begin_step(self, step: int) -> None: ...  # noqa: D102
    def begin_phase(self, phase: Phase) -> None: ...  # noqa: D102
    def mark(self, tensor: Any, category: Category, module: str | None = None) -> None: ...  # noqa: D102


class _SteadyScaler(torch.amp.GradScaler):
    """Never skips a step: in a real run the first ones overflow until the scale fits."""

    def _maybe_opt_step(self, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> None:
        optimizer.step()


class Training:
    """The model on its device, its optimizer, and the step."""

    def __init__(self, job: Job, workload: Workload, observer: Observer) -> None:
        """Move the model to the device, and create the optimizer."""
        self.job, self.workload, self.observer = job, workload, observer
        workload.model.train(not job.inference)
        if job.checkpoint and workload.checkpoint is not None:
            workload.checkpoint()
        elif job.checkpoint:
            for part in workload.model.modules():
                # recomputation would append to the KV cache again; transformers disables it, too
                if getattr(getattr(part, "config", None), "use_cache", False):
                    part.config.use_cache = False  # type: ignore[union-attr]
            for layer in transformer_layers(workload.model):
                _enable_checkpointing(layer)
        self.model = self._placed(workload.model)
        self._mark_model()
        self.optimizer = self._optimizer()
        self.scaler = _SteadyScaler(job.device, enabled=job.amp == "float16" and not job.inference)

    def run(self) -> None:
        """Run all steps of the job."""
        for number in range(self.job.steps):
            self.step(number)

    def step(self, number: int) -> None:
        """Run one step."""
        self.observer.begin_step(number)
        if self.job.inference:
            self._infer()
        elif self.workload.step is not None:
            self._users_step(self.workload.step)
        else:
            self._forward_and_backward()
            self.observer.begin_phase(Phase.OPTIMIZER)
            self._update()
            self.observer.begin_phase(Phase.OTHER)

    def watch(self, observer: Observer) -> None:
        """Replace the observer, and report existing tensors to it."""
        self.observer = observer
        self._mark_model()
        self._mark_state()

    def held(self) -> Iterator[torch.Tensor]:
        """Tensors that persist between steps: parameters, buffers, the optimizer's state."""
        yield from self.model.parameters()
        yield from self.model.buffers()
        if isinstance(self.optimizer, torch.optim.Optimizer):
            for state in self.optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    def _infer(self) -> None:
        self.observer.begin_phase(Phase.FORWARD)
        batch = self._batch()
        with self._without_gradients(), self._autocast():
            if self.workload.step is not None:
                self.workload.step(self.model, batch, None)
            else:
                self.workload.forward(self.model, batch)

    def _users_step(self, step: Callable[[nn.Module, Any, Any], Any]) -> None:
        """Run the user's own step; hooks of the optimizer report its phase."""

        def before_update(*_: Any) -> None:
            self._mark_gradients()
            self.observer.begin_phase(Phase.OPTIMIZER)

        with (
            register_optimizer_step_pre_hook(before_update),
            register_optimizer_step_post_hook(lambda *_: self.observer.begin_phase(Phase.OTHER)),
        ):
            self.observer.begin_phase(Phase.FORWARD)
            with self._autocast():
                step(self.model, self._batch(), self.optimizer)
            self._mark_state()
            self.observer.begin_phase(Phase.OTHER)

    def _forward_and_backward(self) -> None:
        for _ in range(self.job.accumulate):
            self._accumulate()

    def _accumulate(self) -> None:
        self.observer.begin_phase(Phase.FORWARD)
        batch = self._batch()
        with self._autocast():
            loss = self.workload.loss(self.model, batch)
        if self.job.accumulate > 1:
            loss = loss / self.job.accumulate
        loss = self.scaler.scale(loss)
        self.observer.begin_phase(Phase.BACKWARD)
        loss.backward()  # type: ignore[no-untyped-call]
        self._mark_gradients()

    def _trained(self) -> Iterable[nn.Parameter]:
        """Parameters whose gradients are clipped."""
        return self.model.parameters()

    def _state_of(self, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
        return optimizer.state.get(parameter, {})  # type: ignore[no-any-return]

    def _update(self) -> None:
        optimizer = self.optimizer
        if self.job.clip is not None:
            if isinstance(optimizer, torch.optim.Optimizer):
                self.scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self._trained(), self.job.clip)
        if isinstance(optimizer, torch.optim.Optimizer):
            self.scaler.step(optimizer)
            self.scaler.update()
            self._mark_state()
        elif optimizer is not None:
            optimizer.step()
        for parameter in self.model.parameters():
            parameter.grad = None

    def _batch(self) -> Any:
        """A copy of the batch on the device."""
        batch = tree_map(self._to_device, self.workload.batch)
        tree_map(lambda leaf: self.observer.mark(leaf, Category.INPUT), batch)
        return batch

    def _to_device(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.to(self.job.device, dtype=self._dtype if leaf.is_floating_point() else None, copy=True)

    @property
    def _dtype(self) -> torch.dtype | None:
        """The dtype to which model and batch are cast; ``None`` for no cast."""
        return None if self.workload.typed or self.job.dtype is None else dtype_of(self.job.dtype)

    def _placed(self, model: nn.Module) -> nn.Module:
        """The model on the job's device."""
        return model.to(device=self.job.device, dtype=self._dtype)

    def _without_gradients(self) -> AbstractContextManager[Any]:
        return torch.inference_mode() if self.job.inference_mode else torch.no_grad()

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.job.amp is None or self.job.fsdp > 1:
            # FSDP has its own mixed-precision policy
            return nullcontext()
        return torch.autocast(self.job.device, dtype=dtype_of(self.job.amp))

    def _mark_model(self) -> None:
        for name, parameter in self.model.named_parameters():
            self.observer.mark(parameter, Category.PARAMETER, owner(name))
        for name, buffer in self.model.named_buffers():
            self.observer.mark(buffer, Category.BUFFER, owner(name))

    def _mark_gradients(self) -> None:
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                self.observer.mark(parameter.grad, Category.GRADIENT, owner(name))

    def _mark_state(self) -> None:
        optimizer = self.optimizer
        if not isinstance(optimizer, torch.optim.Optimizer):
            return
        for name, parameter in self.model.named_parameters():
            for value in self._state_of(optimizer, parameter).values():
                self.observer.mark(value, Category.OPTIMIZER_STATE, owner(name))

    @property
    def optimizer_name(self) -> str:
        """Class of the optimizer; empty without one."""
        if self.optimizer is None:
            return ""
        if isinstance(self.optimizer, HostOptimizer):
            return self.optimizer.name
        return type(self.optimizer).__name__

    def _optimizer(self) -> torch.optim.Optimizer | HostOptimizer | None:
        if self.job.inference:
            return None
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if not parameters and self.job.optimizer != "none":
            raise UsageError(
                f"--model {self.job.model}: none of its parameters is trained; say --inference, or --optimizer none"
            )
        if self.job.offload:
            return HostOptimizer(self.job, parameters)
        if self.workload.optimizer is not None:
            return self.workload.optimizer(parameters)
        return make_optimizer(self.job, parameters)


def _enable_checkpointing(layer: nn.Module) -> None:
    """Checkpoint a layer: keep its inputs, and recompute its forward in the backward pass."""
    forward = layer.forward

    def recompute(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    layer.forward = recompute


def owner(name: str) -> str:
    """The path of a parameter's module."""
    return name.rpartition(".")[0]
