"""BERT-base (Devlin et al. 2019) from transformers' own definition and a configuration. No pretrained weights belong here."""

from __future__ import annotations

from torch import Tensor, nn
from transformers import AutoModel, BertConfig


class BertBase(nn.Module):
    """Token ids and attention mask, both int64[N, length], to hidden states float32[N, length, 768] and pooled float32[N, 768].

    ``attention`` is transformers' ``attn_implementation``: ``sdpa`` (one operation a layer) or ``eager``.
    """

    def __init__(self, attention: str = "sdpa") -> None:
        super().__init__()
        self.model = AutoModel.from_config(BertConfig(), attn_implementation=attention)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        output = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return output.last_hidden_state, output.pooler_output
