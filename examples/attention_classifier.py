"""Trains attention to find the sign of a queried symbol in a sequence of signed symbols."""

import torch
from torch import nn

from heedful.attention import MultiHeadAttention, masks

torch.manual_seed(0)
embedding, attention, out = nn.Embedding(32, 32), MultiHeadAttention(32, heads=2), nn.Linear(32, 2)
model = nn.ModuleList([embedding, attention, out])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
right = []

for _ in range(300):
    symbols = torch.rand(128, 16).argsort(1)[:, :12]  # 12 of 16 symbols in random order
    signs = torch.randint(2, symbols.shape)
    lengths = torch.randint(1, 13, (128,))  # the rest is padding
    asked = (torch.rand(128) * lengths).long().unsqueeze(1)
    query, keys = embedding(symbols.gather(1, asked)), embedding(symbols + 16 * signs)
    logits = out(attention(query, keys, mask=masks.padding(lengths)))[:, 0]
    answer = signs.gather(1, asked)[:, 0]
    right.append((logits.argmax(1) == answer).float().mean())
    optimizer.zero_grad()
    nn.functional.cross_entropy(logits, answer).backward()
    optimizer.step()

accuracy = torch.stack(right[-20:]).mean()
print(f"{accuracy:.1%} of 2560 new sequences right")
