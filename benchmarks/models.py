"""The models whose training steps are timed."""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.harness import Work
from tests.training import resnet18, tagger

VOCABULARY = 256


class Block(nn.Module):
    """Causal attention and a perceptron, each behind a layer norm and beside a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, width]."""
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Tokens [batch, length] in, logits of the next tokens out."""

    def __init__(self, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [batch, length, vocabulary]."""
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions)))


SIZES = {
    "tiny": {"width": 32, "layers": 2, "heads": 2, "batch": 4, "length": 16},
    "small": {"width": 256, "layers": 4, "heads": 8, "batch": 8, "length": 64},
}


def gpt_step(device: str, size: str, autocast: bool = False) -> Work:
    """Forward, backward and fused AdamW of a decoder language model."""
    shape = dict(SIZES[size])
    batch = shape.pop("batch")
    torch.manual_seed(0)
    model = GPT(**shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(VOCABULARY, (batch, shape["length"] + 1)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            logits = model(tokens[:, :-1]).flatten(0, 1)
            loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    return step


def resnet_step(device: str) -> Work:
    """ResNet-18 on images of 32 x 32."""
    torch.manual_seed(0)
    program = resnet18.Program(device, 1)
    program.schedule = torch.optim.lr_scheduler.ConstantLR(program.optimizer, 1.0)  # which ends with no step
    (batch,) = program.batches
    return lambda: program.step(*batch)


def lstm_step(device: str) -> Work:
    """A bidirectional LSTM over packed sequences."""
    torch.manual_seed(0)
    program = tagger.Program(device, 1)
    (batch,) = program.batches
    return lambda: program.step(*batch)
