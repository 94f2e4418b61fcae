"""A decoder language model of four layers, and its training: ``Program()``, ``losses(device)``.

The text is drawn from a Markov chain, so that there is something to learn; the seed makes every run the same.
"""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, BATCH, STEPS = 19, 24, 48, 4, 4, 6, 50


class Block(nn.Module):
    """Attention and a perceptron, each behind a layer norm and beside a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``mask`` is 0 where a position may look, else -inf."""
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        # Written out: F.scaled_dot_product_attention has a fused kernel on the CPU, with other last bits.
        weights = torch.softmax(q @ k.transpose(-2, -1) * (c // HEADS) ** -0.5 + mask, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Tokens in, logits of the next tokens out; the embedding and the head share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.3)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of shape [batch, context, vocabulary]."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        mask = torch.full((CONTEXT, CONTEXT), float("-inf"), device=tokens.device).triu(1)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def text() -> torch.Tensor:
    """Tokens [steps, batch, context + 1] of a chain in which each token has two possible successors."""
    successors = torch.randint(VOCABULARY, (VOCABULARY, 2))
    tokens = torch.randint(VOCABULARY, (STEPS, BATCH, 1))
    for _ in range(CONTEXT):
        following = successors[tokens[..., -1:], torch.randint(2, (STEPS, BATCH, 1))]
        tokens = torch.cat([tokens, following], dim=-1)
    return tokens


class Program:
    """AdamW with clipped gradients."""

    def __init__(self, device: str, steps: int = STEPS) -> None:
        self.model, self.batches = Decoder().to(device), [(batch,) for batch in text().to(device)[:steps]]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3)

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        """The loss before the update."""
        loss = F.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


def losses(device: str) -> torch.Tensor:
    """The losses of all steps, on the CPU."""
    torch.manual_seed(0)
    program = Program(device)
    return torch.stack([program.step(*batch) for batch in program.batches]).cpu()
