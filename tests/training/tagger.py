"""A tagger of sentences of several lengths, an LSTM over packed sequences: ``Program()``."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

WORDS, TAGS, WIDTH = 40, 5, 24
LENGTHS = [3, 4, 2, 4, 1, 4]


class Cells(nn.Module):
    """One LSTM layer over a packed sequence, written out: torch's own computes in another order on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.hidden = nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(2 * WIDTH, 8 * WIDTH, bias=False)

    def forward(self, sequence: rnn.PackedSequence) -> tuple[rnn.PackedSequence, None]:
        sizes = sequence.batch_sizes.tolist()
        h = c = sequence.data.new_zeros(sizes[0], 2 * WIDTH)
        outputs = []
        for x in sequence.data.split(sizes):
            gates = self.inputs(x) + self.hidden(h[: len(x)])
            i, f, g, o = gates.chunk(4, 1)
            c = f.sigmoid() * c[: len(x)] + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return sequence._replace(data=torch.cat(outputs)), None


class Tagger(nn.Module):
    """Packed words in, logits of the tags of all of them out, packed alike."""

    def __init__(self, cells: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.drop = nn.Dropout(0.2)
        self.lstm = Cells() if cells else nn.LSTM(WIDTH, WIDTH, num_layers=2, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(2 * WIDTH, TAGS)

    def forward(self, words: rnn.PackedSequence) -> torch.Tensor:
        """Logits [sum of the lengths, tags]."""
        out, _ = self.lstm(words._replace(data=self.drop(self.table(words.data))))
        return self.head(out.data)


class Program:
    """Adam with clipped gradients; a tag depends on its word and on the word before."""

    def __init__(self, device: str, steps: int, cells: bool = False) -> None:
        self.model = Tagger(cells).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        tags = torch.randint(TAGS, (WORDS, 2))
        self.batches = []
        for _ in range(steps):
            sentences = [torch.randint(1, WORDS, (length,)) for length in LENGTHS]
            labels = [tags[s, torch.cat([s[:1] * 0, s[:-1] % 2])] for s in sentences]
            words, expected = (rnn.pad_sequence(each) for each in (sentences, labels))
            self.batches.append((words.to(device), expected.to(device)))

    def step(self, words: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        """The loss before the update; packs on the device."""
        sequence, expected = (rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False) for x in (words, tags))
        loss = F.cross_entropy(self.model(sequence), expected.data)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()
