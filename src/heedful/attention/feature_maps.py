"""Feature maps φ for linearized attention: similarity(q, k) = φ(q)ᵀφ(k), with φ ≥ 0.

Any callable ``[.., L, D] -> [.., L, F]`` with non-negative results can be used; this module has the
two usual ones, and those that recipes can name. Plug-ins add names with
:func:`register_feature_map`.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from heedful.basics.parts import Parts, PartSettings

FeatureMap = Callable[[Tensor], Tensor]
"""Vectors ``[.., L, D]`` to features ``[.., L, F]``, none of them negative."""


class FeatureMapSettings(PartSettings):
    """Base of the settings of feature maps; a table of this type is that of the map it names.

    Example:
        >>> FeatureMapSettings.model_validate("relu").build(4)
        ReluFeatures()
    """

    parts: ClassVar[Parts["FeatureMapSettings"]] = Parts("feature map")

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


for _kind in (EluPlusOne.Settings, ReluFeatures.Settings):
    register_feature_map(str(_kind.model_fields["name"].default), _kind)
