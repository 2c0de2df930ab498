"""GPT-2: one pass over a text, and greedy generation with a key/value cache."""

from typing import Any

from runners.contract.catalogue.language import NEW_TOKENS
from runners.workloads.base import Inputs
from runners.workloads.language.text import Text

_USE_YOUR_OWN = -1


class Gpt2(Text):
    """`gpt2` with its language-model head; the output is the logits of all positions.

    A pass fills a key/value cache, as the checkpoint's configuration says, which is then dropped. Without one,
    transformers would look for texts that are packed into one row, which waits for the device and cannot be exported.
    The model has no padding token. Whichever stands behind a padded text, causal attention does not see it.
    """

    def construct(self, attention: Any) -> Any:
        module = super().construct(attention)
        # Initialisers do it otherwise: the head is the table of embeddings
        self.inner(module).tie_weights()
        return module

    def adapted(self, model: Any) -> Any:
        return super().adapted(logits_alone(model))

    def inner(self, module: Any) -> Any:
        return super().inner(module).model


class Gpt2Generate(Gpt2):
    """`gpt2`, greedy: a pass over the prompt, then one token after the other with a key/value cache.

    Every step chooses the token of the best score, as greedy generation does. Two right backends may choose
    differently where scores are close, and would be on different texts from there on. So the choice of a step is
    replaced by a given token before it is fed back, in all backends alike; where -1 is given, the model's own
    choice stands, and -1 throughout is plain greedy generation. This costs three operators on one number per row and
    step, and keeps in every graph that each step depends on the choice before it.

    Outputs are the best score of each step, which is continuous where the choice is not, and all logits of the last
    step, to which every token and the whole cache contribute. Of the prompt only the last position goes through
    the head. Prompts are never padded.
    """

    @property
    def new_tokens(self) -> int:
        """Tokens that are generated."""
        return int(self.options[NEW_TOKENS])

    def adapted(self, model: Any) -> Any:
        return generation(model, self.new_tokens)

    def example(self, generator: Any) -> Inputs:
        return self.random_tokens(generator, self.tokens), self.random_tokens(generator, self.new_tokens - 1)


def logits_alone(model: Any) -> Any:
    """A module that returns the logits in a tuple, without the cache."""
    import torch

    class LogitsAlone(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any, attention_mask: Any = None) -> Any:
            return self.model(tokens, attention_mask=attention_mask, return_dict=False)[:1]

    return LogitsAlone()


def generation(model: Any, new_tokens: int) -> Any:
    """A module that generates a fixed number of tokens in one call.

    It takes the prompts, (batch, length), and what replaces the choices of all steps but the last, (batch,
    new_tokens - 1); -1 leaves a choice as it is. It returns best scores, (batch, new_tokens), and the last logits,
    (batch, vocabulary).
    """
    import torch

    class Generation(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, prompt: Any, given: Any) -> Any:
            tokens, cache, scores = prompt, None, []
            for step in range(new_tokens):
                outputs = self.model.transformer(tokens, past_key_values=cache, use_cache=True)
                cache = outputs.past_key_values
                logits = self.model.lm_head(outputs.last_hidden_state[:, -1])
                score, choice = logits.max(dim=-1)
                scores.append(score)
                if step + 1 < new_tokens:
                    replacement = given[:, step]
                    tokens = torch.where(replacement == _USE_YOUR_OWN, choice, replacement).unsqueeze(-1)
            return torch.stack(scores, dim=1), logits

    return Generation()
