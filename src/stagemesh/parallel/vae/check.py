"""A plan of a VAE against the real one: its tiles, and what modules do to bands of a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import torch
from torch import nn

from stagemesh.parallel.modules import Found, attribute, count
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.vae_plan import VaePlan, VaeRole

_Finding: TypeAlias = tuple[str, str, str]
"""Code, message and help."""
_INSIDE: Final = (VaeRole.RESIZE, VaeRole.COMPOSED)
"""Roles of modules that are looked into."""
_ROWS, _COLUMNS = -2, -1


@frozen
class Tiles:
    """Tiles of one VAE, in pixels."""

    size: tuple[int, int]
    """Height and width of one."""
    stride: tuple[int, int]
    """Rows and columns from one to the next."""


@frozen
class Halo:
    """Rows of its neighbours that a convolution sees beside its own band."""

    above: int
    """Of the band above."""
    below: int
    """Of the band below."""


def tiles_of(plan: VaePlan, vae: nn.Module) -> Tiles:
    """Return the tiles of a VAE; `LookupError` where it has no such attribute."""
    rule = plan.tiles
    height = _side(vae, rule.height, rule.stride_height, rule.overlap_height)
    width = _side(vae, rule.width, rule.stride_width, rule.overlap_width)
    return Tiles(size=(height[0], width[0]), stride=(height[1], width[1]))


def _side(
    vae: nn.Module, size_name: str, stride_name: str | None, overlap_name: str | None
) -> tuple[int, int]:
    size = count(vae, "", size_name)
    if stride_name is not None:
        return size, count(vae, "", stride_name)
    share = attribute(vae, "", str(overlap_name))
    if not isinstance(share, float) or not 0 <= share < 1:
        raise LookupError(overlap_name)
    return size, int(size * (1 - share))


def step_of(module: nn.Module, dim: int = _ROWS) -> int:
    """Return how many rows, or columns, of what comes in there are for one that comes out."""
    conv = _conv(module)
    return 1 if conv is None else conv.stride[dim]


def halo_of(module: nn.Module, role: VaeRole, dim: int = _ROWS) -> Halo:
    """Return what a convolution, or a module that pads for the one inside, sees.

    A band of rows, or of columns, begins at a multiple of its step. Wrappers pad as much above as
    below.
    """
    conv = _conv(module)
    assert conv is not None
    kernel, step = conv.kernel_size[dim], conv.stride[dim]
    above = kernel // 2
    if role is VaeRole.DOWN:
        above = 0
    elif type(module) in (nn.Conv2d, nn.Conv3d):
        assert not isinstance(conv.padding, str)
        above = conv.padding[dim]
    return Halo(above=above, below=max(kernel - step - above, 0))


def leaves(plan: VaePlan, half: nn.Module, path: str = "") -> Iterator[Found]:
    """Return the modules that have rules of their own and are not looked into."""
    role = plan.role(type(half).__name__)
    if role not in _INSIDE:
        yield path, half
    else:
        for name, child in half.named_children():
            yield from leaves(plan, child, f"{path}.{name}" if path else name)


def vae_bind_findings(plan: VaePlan, vae: nn.Module) -> tuple[Diagnostic, ...]:
    """Say what of a plan does not hold for a VAE."""
    found = [*_wrong_tiles(plan, vae), *_uncounted(plan, vae)]
    children = dict(vae.named_children())
    for half in plan.halves if plan.rules else ():
        if half in children:
            for at in leaves(plan, children[half], half):
                found += _wrong_leaf(plan, at)
        else:
            message = f"`{plan.name}` has no module `{half}`"
            found.append(("MD050", message, f"it has `{', '.join(children)}`"))
    return _told(plan, found)


def _told(plan: VaePlan, found: list[_Finding]) -> tuple[Diagnostic, ...]:
    origin = Origin(layer=Layer.PIPELINE, source=f"plan of `{plan.name}`")
    return tuple(
        Diagnostic(code=code, message=message, origin=origin, help=help_text)
        for code, message, help_text in dict.fromkeys(found)
    )


def _wrong_tiles(plan: VaePlan, vae: nn.Module) -> Iterator[_Finding]:
    """Attributes that are missing, and tiles that leave rows between them."""
    try:
        tiles = tiles_of(plan, vae)
    except LookupError as error:
        message = f"`{plan.name}` has no usable `{error.args[0]}` for its tiles"
        yield "MD051", message, "name the attributes with sizes in pixels, and shares below 1"
        return
    for side, size, stride in zip(("height", "width"), tiles.size, tiles.stride, strict=True):
        if not 0 < stride <= size:
            message = f"tiles of `{plan.name}` are `{size}` along the {side} and `{stride}` apart"
            yield "MD052", message, "they touch or overlap"


def _uncounted(plan: VaePlan, vae: nn.Module) -> Iterator[_Finding]:
    """A class that the cache counts, and none of it there."""
    kinds = {type(module).__name__ for module in vae.modules()}
    if plan.counted is not None and plan.counted not in kinds:
        message = f"`{plan.name}` has no `{plan.counted}` for its cache to count"
        yield "MD058", message, "name the class of its causal convolutions in `counted`"


def _wrong_leaf(plan: VaePlan, at: Found) -> Iterator[_Finding]:
    """A class without a rule, or one whose modules are something else."""
    path, module = at
    kind = type(module).__name__
    role = plan.role(kind)
    if role is None:
        message = f"`{path}` of `{plan.name}` is a `{kind}`, which has no rule"
        yield "MD058", message, "say what modules of this class do to a band of a picture"
        return
    conv = _conv(module)
    is_wide = any(conv.kernel_size[_ROWS:] != (1, 1) for conv in _convs(module))
    has_statistics = any(isinstance(each, nn.GroupNorm) for each in module.modules())
    reason = {
        VaeRole.POINTWISE: "it sees other rows" if is_wide or has_statistics else None,
        VaeRole.STATISTICS: None if isinstance(module, nn.GroupNorm) else "it is no `GroupNorm`",
        VaeRole.CONV: _unlike_conv(conv),
        VaeRole.DOWN: None if conv is not None and _steps(conv) else "it has no step",
        VaeRole.PAD: None if isinstance(module, nn.ZeroPad2d) else "it is no `ZeroPad2d`",
    }.get(role)
    if reason is not None:
        message = f"`{path}` of `{plan.name}`, a `{kind}`, cannot be `{role.value}`"
        yield "MD058", message, reason


def _convs(module: nn.Module) -> list[nn.Conv2d | nn.Conv3d]:
    return [each for each in module.modules() if isinstance(each, nn.Conv2d | nn.Conv3d)]


def _conv(module: nn.Module) -> nn.Conv2d | nn.Conv3d | None:
    return next(iter(_convs(module)), None)


def _steps(conv: nn.Conv2d | nn.Conv3d) -> bool:
    return conv.stride[_ROWS] > 1


def _unlike_conv(conv: nn.Conv2d | nn.Conv3d | None) -> str | None:
    if conv is None:
        return "it has no convolution"
    if conv.kernel_size[_ROWS] % 2 == 0 or conv.kernel_size[_COLUMNS] % 2 == 0:
        return f"its kernel `{tuple(conv.kernel_size)}` is even"
    if any(each != 1 for each in conv.dilation[_ROWS:]) or conv.padding_mode == "circular":
        return "it is dilated, or goes round the picture"
    return None


def rehearse_vae(
    plan: VaePlan, vae: nn.Module, run: Callable[[], object]
) -> tuple[Diagnostic, ...]:
    """Run a VAE on the meta device; every leaf does to rows and columns what its role says."""
    found: list[_Finding] = []

    def watch(path: str, role: VaeRole | None) -> Callable[..., None]:
        def look(module: nn.Module, args: tuple[object, ...], output: object) -> None:
            before, after = args[0], output
            if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor):
                found.extend(_resized(plan, (path, module), role, (before, after)))

        return look

    children = dict(vae.named_children())
    for half in plan.halves:
        for path, module in leaves(plan, children[half], half):
            module.register_forward_hook(watch(path, plan.role(type(module).__name__)))
    with torch.no_grad():
        run()
    return _told(plan, found)


def _resized(
    plan: VaePlan, at: Found, role: VaeRole | None, tensors: tuple[torch.Tensor, torch.Tensor]
) -> Iterator[_Finding]:
    before, after = (tuple(each.shape[_ROWS:]) for each in tensors)
    path, module = at
    conv = _conv(module)
    wanted = before
    if conv is not None and role in (VaeRole.CONV, VaeRole.DOWN):
        wanted = (before[0] // conv.stride[_ROWS], before[1] // conv.stride[_COLUMNS])
    if role is VaeRole.PAD:
        wanted = after
    if after != wanted:
        kind = type(module).__name__
        message = f"`{path}` of `{plan.name}`, a `{kind}`, makes `{after}` of `{before}`"
        shown = "no role" if role is None else f"`{role.value}`"
        yield "MD058", message, f"{shown} means `{wanted}`"
