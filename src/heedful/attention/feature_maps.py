"""Feature maps φ for linearized attention: similarity(q, k) = φ(q)ᵀφ(k), with φ ≥ 0.

Any callable ``[.., L, D] -> [.., L, F]`` with non-negative results can be used; this module has the
two usual ones, and those that recipes can name. Plug-ins add names with
:func:`register_feature_map`.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.basics.parts import Parts, PartSettings

FeatureMap = Callable[[Tensor], Tensor]
"""Vectors ``[.., L, D]`` to features ``[.., L, F]``; for linear attention, none is negative."""


class FeatureMapSettings(PartSettings):
    """Base of the settings of feature maps; a table of this type is that of the map it names.

    Example:
        >>> FeatureMapSettings.model_validate("relu").build(4)
        ReluFeatures()
    """

    parts: ClassVar[Parts["FeatureMapSettings"]] = Parts("feature map")
    may_be_negative: ClassVar[bool] = False
    """Whether features may be negative, so that only the delta rule can use them."""

    def build(self, width: int) -> nn.Module:
        """The feature map of vectors ``[.., L, width]``."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `build`")


class EluPlusOne(nn.Module):
    """φ(x) = elu(x) + 1: x + 1 above 0, exp(x) below; always above 0.

    Katharopoulos, Vyas, Pappas, Fleuret 2020, "Transformers are RNNs", section 3.2.1, equation 7.

    Example:
        >>> EluPlusOne()(torch.tensor([-100.0, 0.0, 2.0]))
        tensor([3.7835e-44, 1.0000e+00, 3.0000e+00])
    """

    class Settings(FeatureMapSettings):
        """The table of a recipe."""

        name: Literal["elu-plus-one"] = "elu-plus-one"

        def build(self, width: int) -> "EluPlusOne":
            return EluPlusOne()

    def forward(self, vectors: Tensor) -> Tensor:
        # exp(x) instead of (exp(x) − 1) + 1, which loses all digits if x is far below 0.
        return torch.where(vectors > 0, vectors + 1, vectors.clamp(max=0).exp())


class ReluFeatures(nn.Module):
    """φ(x) = max(x, 0): features may be exactly zero, so that a key can have no weight.

    A query that shares no feature with any key has context 0. Kasai et al. 2021, "Finetuning
    Pretrained Transformers into RNNs", section 2.2 (there after a learned matrix, which the
    projections of :class:`~heedful.attention.LinearAttention` are).

    Example:
        >>> ReluFeatures()(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """

    class Settings(FeatureMapSettings):
        """The table of a recipe."""

        name: Literal["relu"] = "relu"

        def build(self, width: int) -> "ReluFeatures":
            return ReluFeatures()

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors.relu()


class DpfpFeatures(nn.Module):
    """Deterministic parameter-free projection: products of rectified components, 2·D·nu features.

    With r = max(0, [x; −x]), the features are r_i · r_{i+j} for j = 1 … nu, indices modulo 2·D.
    Few are above 0 at a time, so that many keys are orthogonal. Schlag, Irie, Schmidhuber 2021,
    "Linear Transformers Are Secretly Fast Weight Programmers", section 5.3.

    Args:
        nu: how many neighbours each component is multiplied with.

    Raises:
        ValueError: nu is below 1.

    Example:
        >>> DpfpFeatures()(torch.tensor([2.0, 3.0]))
        tensor([0., 6., 0., 0.])
    """

    class Settings(FeatureMapSettings):
        """The table of a recipe."""

        name: Literal["dpfp"] = "dpfp"
        nu: int = Field(1, ge=1, le=16)
        """How many neighbours each component is multiplied with."""

        def build(self, width: int) -> "DpfpFeatures":
            return DpfpFeatures(self.nu)

    def __init__(self, nu: int = 1) -> None:
        super().__init__()
        if nu < 1:
            raise ValueError(f"nu must be at least 1, not {nu}")
        self.nu = nu

    def forward(self, vectors: Tensor) -> Tensor:
        rectified = torch.cat([vectors, -vectors], -1).relu()
        products = [rectified * rectified.roll(j, -1) for j in range(1, self.nu + 1)]
        return torch.cat(products, -1)

    def extra_repr(self) -> str:
        return f"nu={self.nu}"


class SiluFeatures(nn.Module):
    """φ(x) = x · sigmoid(x), which may be negative: for the delta rule only.

    Yang, Wang, Zhang, Shen, Kim 2024, "Parallelizing Linear Transformers with the Delta Rule over
    Sequence Length", section 3.3.

    Example:
        >>> SiluFeatures()(torch.tensor([-1.0, 0.0]))
        tensor([-0.2689,  0.0000])
    """

    class Settings(FeatureMapSettings):
        """The table of a recipe."""

        may_be_negative: ClassVar[bool] = True
        name: Literal["silu"] = "silu"

        def build(self, width: int) -> "SiluFeatures":
            return SiluFeatures()

    may_be_negative = True

    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.silu(vectors)


class _OfWidth(FeatureMapSettings):
    """The settings of a feature map that a function builds."""

    def build(self, width: int) -> nn.Module:
        function: Callable[[int], nn.Module] = type(self).function
        return function(width)


def register_feature_map(
    name: str, build: Callable[[int], nn.Module] | type[FeatureMapSettings]
) -> None:
    """Add a feature map that recipes can name.

    Args:
        name: the name in recipes.
        build: builds it for the width of a head; or its settings, a subclass of
            :class:`FeatureMapSettings`.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_feature_map("of-mine", lambda width: ReluFeatures())
        >>> FeatureMapSettings.model_validate("of-mine").build(4)
        ReluFeatures()
        >>> del FeatureMapSettings.parts["of-mine"]
    """
    FeatureMapSettings.parts.add(name, build, _OfWidth)


for _kind in (
    EluPlusOne.Settings,
    ReluFeatures.Settings,
    DpfpFeatures.Settings,
    SiluFeatures.Settings,
):
    register_feature_map(str(_kind.model_fields["name"].default), _kind)
