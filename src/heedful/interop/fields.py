"""The fields of a ``config.json``: used ones, ignored ones, and unknown ones, which are errors."""

import json
from collections.abc import Collection, Mapping
from typing import Any, get_args

from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS, MOST_WIDTH
from heedful.layers.transformer import Activation

_BOOKKEEPING = """
_name_or_path _num_labels architectures model_type transformers_version dtype torch_dtype
id2label label2id num_labels use_cache output_attentions output_hidden_states return_dict
task_specific_params init_std initializer_range gradient_checkpointing tokenizer_class
finetuning_task problem_type use_return_dict torchscript bad_words_ids max_length min_length
num_beams early_stopping no_repeat_ngram_size length_penalty do_sample temperature top_k top_p
num_return_sequences num_beam_groups repetition_penalty encoder_no_repeat_ngram_size
diversity_penalty chunk_size_feed_forward typical_p remove_invalid_values output_scores
return_dict_in_generate _attn_implementation_autoset n_special predict_special_tokens output_past
use_bfloat16 tf_legacy_loss
"""
_NO_EFFECT = frozenset(_BOOKKEEPING.split())
"""Fields for bookkeeping, weight initialisation or generation."""

MOST_ROWS = MOST_SYMBOLS - 5
"""Maximum rows of an embedding table; heedful adds up to five symbols."""

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}
_ACTIVATION_NAMES = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu-tanh": "gelu_new",
    "silu": "silu",
}


class Fields:
    """The fields of a configuration, which records the fields that were read.

    Args:
        values: the content of the file.
        where: the file, for messages.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self._read: set[str] = set()

    def refuse(self, name: str, reason: str) -> UserError:
        """The error for a field, with its value."""
        value = json.dumps(self.values.get(name), ensure_ascii=False)
        return UserError(f"{self.where}: {name} = {value}: {reason}")

    def _get(self, name: str, default: Any) -> Any:
        self._read.add(name)
        return self.values.get(name, default)

    def count(
        self, name: str, default: int | None = None, least: int = 1, most: int = MOST_WIDTH
    ) -> int:
        """An integer from ``least`` to ``most``."""
        value = self._get(name, default)
        if name not in self.values and default is None:
            raise UserError(f"{self.where}: the field {name} is missing")
        if type(value) is not int or not least <= value <= most:
            raise self.refuse(name, f"expected an integer from {least} to {most:,}")
        return value

    def symbol(self, name: str) -> int | None:
        """The id of a symbol, or None."""
        if self.values.get(name) is None:
            self._read.add(name)
            return None
        return self.count(name, least=0, most=MOST_SYMBOLS)

    def share(self, name: str, default: float = 0.0) -> float:
        """A number from 0 to less than 1."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.refuse(name, "expected a number from 0 to less than 1")
        return float(value)

    def number(self, name: str, default: float) -> float:
        """A number above 0."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.refuse(name, "expected a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, "expected true or false")
        return value

    def activation(self, name: str, default: str) -> Activation:
        """An activation function, by heedful's name."""
        value = self._get(name, default)
        found = _ACTIVATIONS.get(value) if isinstance(value, str) else None
        for activation in get_args(Activation):
            if activation == found:
                result: Activation = activation
                return result
        raise self.refuse(name, f"not supported; supported are {', '.join(_ACTIVATIONS)}")

    def require(self, name: str, *allowed: Any) -> None:
        """Raise UserError unless the field is absent, null, or one of ``allowed``."""
        value = self._get(name, None)
        if value is not None and value not in allowed:
            wanted = " or ".join(json.dumps(one) for one in allowed) or "null"
            raise self.refuse(name, f"not supported; only {wanted} is")

    def ignore(self, names: Collection[str]) -> None:
        """Mark fields as read that have no effect in this layout."""
        self._read |= set(names)

    def finish(self) -> None:
        """Check that all fields have been read, except null and empty ones.

        Raises:
            UserError: a field has not been read; the message has its name and value.
        """
        self.require("pruned_heads", {})
        for name, value in self.values.items():
            if name not in self._read and name not in _NO_EFFECT and value is not None:
                raise self.refuse(
                    name,
                    "heedful does not know this field, so the model might not be the same; if it "
                    f"has no effect, import with --ignore-field {name}",
                )


def external_activation(activation: Activation) -> str:
    """The name of an activation function of heedful in a ``config.json``."""
    return _ACTIVATION_NAMES[activation]
