"""srd.torch: DDP and FSDP train to the same parameters, to the last bit, as DDP does over gloo with two ranks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tests.srd.torch.ranks import dist, run, torch

STEPS = 8


def trained(kind: str) -> tuple[float, str]:
    """Train a small model; return the last loss, and a digest of all parameters."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.BatchNorm1d(512), torch.nn.Linear(512, 10)
    )
    model = wrapped(layers, kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(1 + dist.get_rank())
    loss = torch.zeros(())
    for _ in range(STEPS):
        given = torch.randn(32, 64)
        loss = torch.nn.functional.cross_entropy(model(given), given[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        digest.update(whole.detach().contiguous().numpy().tobytes())
    return float(loss.detach()), digest.hexdigest()


def wrapped(layers: Any, kind: str) -> Any:
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(layers)
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - slow to import

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (layers[0], layers[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(layers, mesh=mesh)
    return layers


def test_ddp_and_fsdp2__train_as_ddp_over_gloo(tmp_path: Path) -> None:
    gloo = run(trained, "ddp", world=2, store=tmp_path / "gloo", backend="gloo")
    assert run(trained, "ddp", world=2, store=tmp_path / "ddp") == gloo
    assert run(trained, "fsdp2", world=2, store=tmp_path / "fsdp2") == gloo
    assert run(trained, "fsdp2", world=2, store=tmp_path / "fsdp2-gloo", backend="gloo") == gloo
    assert gloo[0][1] == gloo[1][1]
