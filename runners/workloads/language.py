"""Encoders for text: random tokens, no mask, no padding."""

from typing import Any, Dict, Optional

from runners.contract.record import FactValue
from runners.workloads.tensors import TensorWorkload


class BertBase(TensorWorkload):
    """BERT-base with its pooler; outputs are the last hidden state and the pooled first token."""

    preload = ("torch", "transformers", "transformers.models.bert.modeling_bert")

    def config(self, **settings: Any) -> Any:
        """The configuration of the model."""
        from transformers import BertConfig

        return BertConfig(**settings)

    def model_class(self) -> Any:
        """The class of the model."""
        from transformers import BertModel

        return BertModel

    def construct(self, attention: Optional[str]) -> Any:
        from transformers.initialization import no_init_weights

        # Tuples instead of output objects: all backends then run the very same module, without a wrapper
        config = self.config(return_dict=False, attn_implementation=attention or "sdpa")
        with no_init_weights():
            return self.model_class()(config)

    def example(self, generator: Any) -> Any:
        import torch

        shape = (1, self.spec.workload.sequence_length)
        return torch.randint(self.config().vocab_size, shape, generator=generator)

    def facts(self, model: Any) -> Dict[str, FactValue]:
        facts = super().facts(model)
        facts["input_mask"] = "none"
        facts["attn_implementation"] = str(model.config._attn_implementation)
        return facts


class TinyBert(BertBase):
    """Two narrow layers: a model for fast tests, not for conclusions."""

    def config(self, **settings: Any) -> Any:
        return super().config(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=128,
            vocab_size=1024,
            **settings,
        )


class DistilBert(BertBase):
    """DistilBERT; the output is the last hidden state."""

    preload = ("torch", "transformers", "transformers.models.distilbert.modeling_distilbert")

    def config(self, **settings: Any) -> Any:
        from transformers import DistilBertConfig

        return DistilBertConfig(**settings)

    def model_class(self) -> Any:
        from transformers import DistilBertModel

        return DistilBertModel
