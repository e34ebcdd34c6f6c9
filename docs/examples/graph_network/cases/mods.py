import torch


class GraphNet(torch.nn.Module):
    """Sum the messages that each node receives over its edges."""

    def __init__(self) -> None:
        super().__init__()
        self.message = torch.nn.Linear(4, 3)
        self.update = torch.nn.Linear(7, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        src, dst = edge_index[0], edge_index[1]
        m = torch.relu(self.message(x[src]))
        sums = torch.zeros(x.shape[0], 3).index_add(0, dst, m)
        return self.update(torch.cat([x, sums], dim=1))
