"""Llamas with random weights, created on the GPU.

Imported by: workloads.
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 32000


def model(hidden, inner, layers, heads, key_heads, positions):
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=inner,
                         num_hidden_layers=layers, num_attention_heads=heads,
                         num_key_value_heads=key_heads, max_position_embeddings=positions,
                         attn_implementation="sdpa")
    with torch.device("cuda"):
        made = LlamaForCausalLM(config)
    return made.to(device="cuda", dtype=torch.bfloat16)


def tokens(batch, length):
    return torch.randint(0, VOCABULARY, (batch, length), device="cuda")


def loss_of(made, batch, length):
    ids = tokens(batch, length)
    return made(input_ids=ids, labels=ids, use_cache=False).loss
