"""Losses and gradients of a task in torch."""

from __future__ import annotations

from lopt._core import Error

from .methods import Method
from .values import is_tensor, kind_of, row_of


def import_torch(who: str):
    try:
        import torch
    except ImportError as error:
        raise Error(
            f"{who}: loss(params, batch) is differentiated by torch, which cannot be imported "
            f"({error}); install it, or write loss_and_grad(params, batch) with NumPy"
        ) from error
    return torch


def _transforms():
    """torch.func's vmap and grad_and_value; in torch 1.13 they are those of its functorch."""
    try:
        from torch.func import grad_and_value, vmap
    except ImportError:
        from functorch import grad_and_value, vmap
    return vmap, grad_and_value


class TorchLoss:
    """A loss(params, batch, config, split)."""

    def __init__(self, who: str, method: Method, aux: tuple[str, ...], per_replica: bool, torch):
        self._who, self._method, self._aux = who, method, aux
        self._per_replica, self._torch = per_replica, torch

    def evaluate(self, given: dict, shapes: dict, n: int, gradients: bool):
        """Losses, a dict of gradients (None if they are not wanted) and a dict of aux outputs, all
        of n inner trainings."""
        batched = [name for name in self._method.takes if name not in ("params", "split")]
        split = given["split"]

        def loss(params, *rest):
            # A dict of its own: what is put in place of params is not what is differentiated by.
            row = dict(zip(batched, rest), params=dict(params), split=split)
            value, aux = self._method.results(self._method(**row), ["a loss"], self._aux)
            value = self._scalar("loss", value)
            if gradients and not value.requires_grad:
                raise self._no_gradient()
            return value, {key: self._scalar(f"aux['{key}']", aux[key]).detach() for key in aux}

        arguments = (given["params"], *(given[name] for name in batched))
        if self._per_replica:
            return self._one_by_one(loss, arguments, n, gradients)
        vmap, grad_and_value = _transforms()
        if gradients:
            found, (losses, aux) = vmap(grad_and_value(loss, has_aux=True))(*arguments)
            return losses, found, aux
        losses, aux = vmap(loss)(*arguments)
        return losses, None, aux

    def _one_by_one(self, loss, arguments, n: int, gradients: bool):
        torch = self._torch
        losses, found, auxes = [], [], []
        for i in range(n):
            params, *rest = (row_of(argument, i) for argument in arguments)
            with torch.set_grad_enabled(gradients):
                for tensor in params.values():
                    tensor.requires_grad_(gradients)
                value, aux = loss(params, *rest)
                if gradients:
                    each = torch.autograd.grad(value, list(params.values()), allow_unused=True)
                    if all(g is None for g in each):  # what needs one are other tensors
                        raise self._no_gradient()
                    found.append([torch.zeros_like(p) if g is None else g
                                  for p, g in zip(params.values(), each)])
            losses.append(value.detach())
            auxes.append(aux)
        return (
            torch.stack(losses),
            {key: torch.stack([each[k] for each in found]) for k, key in enumerate(arguments[0])}
            if gradients else None,
            {key: torch.stack([aux[key] for aux in auxes]) for key in auxes[0]},
        )

    def _no_gradient(self):
        return Error(
            f"{self._who}: loss has no gradient; it must be computed from params by torch, without "
            "detach(), no_grad() or a way through NumPy")

    def _scalar(self, what: str, value):
        """A tensor with one number, as float32."""
        if not is_tensor(value):
            raise Error(
                f"{self._who}: {what} is {kind_of(value)}, wanted a torch tensor with one number")
        if value.dim() != 0 or not value.is_floating_point():
            raise Error(
                f"{self._who}: {what} has shape {list(value.shape)} and type {value.dtype}, wanted "
                "one number (shape [], a floating type) for one inner training; take a mean or "
                "a sum"
            )
        return value.to(self._torch.float32)
