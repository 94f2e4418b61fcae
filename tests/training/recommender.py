"""A recommender: tables with sparse gradients, bags of what a user has seen, and a perceptron: ``Program()``."""

import torch
from torch import nn
from torch.nn import functional as F

USERS, ITEMS, WIDTH, BATCH = 60, 50, 8, 32


class Recommender(nn.Module):
    """Users, their histories (items with offsets and weights) and items in; a logit for each pair out."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, WIDTH, sparse=True)
        self.seen = nn.EmbeddingBag(ITEMS, WIDTH, mode="sum", sparse=True)
        self.items = nn.EmbeddingBag(ITEMS, WIDTH, mode="mean", sparse=True)
        self.mlp = nn.Sequential(nn.Linear(3 * WIDTH, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(
        self, users: torch.Tensor, seen: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor, items: torch.Tensor
    ) -> torch.Tensor:
        """Logits [batch]; ``items`` [batch, 2] are an item and its category's."""
        parts = [self.users(users), self.seen(seen, offsets, per_sample_weights=weights), self.items(items)]
        return self.mlp(torch.cat(parts, 1)).squeeze(1)


class Program:
    """SGD on the tables and AdamW on the perceptron; users like the first half of the items."""

    def __init__(self, device: str, steps: int) -> None:
        self.model = Recommender().to(device)
        tables = [p for part in (self.model.users, self.model.seen, self.model.items) for p in part.parameters()]
        self.optimizers = [
            torch.optim.SGD(tables, lr=5.0),
            torch.optim.AdamW(self.model.mlp.parameters(), lr=0.02),
        ]
        self.batches = []
        for _ in range(steps):
            users, items = torch.randint(USERS, (BATCH,)), torch.randint(ITEMS, (BATCH,))
            counts = torch.randint(4, (BATCH,))  # histories may be empty
            batch = [
                users,
                torch.randint(ITEMS, (int(counts.sum()),)),
                counts.cumsum(0) - counts,
                torch.rand(int(counts.sum())),
                torch.stack([items, items // 5], 1),
                (items < ITEMS // 2).float(),
            ]
            self.batches.append([t.to(device) for t in batch])

    def step(self, *batch: torch.Tensor) -> torch.Tensor:
        """The loss before the update; the last of the batch is what was liked."""
        *inputs, liked = batch
        loss = F.binary_cross_entropy_with_logits(self.model(*inputs), liked)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        assert self.model.seen.weight.grad.is_sparse
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.detach()
