"""Objects that are broadcast by gathering them."""

from __future__ import annotations

from typing import Any

import torch

from tbmem.rehearsal.object_collectives import gathering, receiving, sending


class World:
    """torch.distributed as one rank sees it, with the objects of the others."""

    def __init__(self, rank: int, others: dict[int, list[Any]]) -> None:
        self._rank, self._others = rank, others

    def get_rank(self, group: Any = None) -> int:
        return self._rank

    def get_world_size(self, group: Any = None) -> int:
        return 3

    def get_group_rank(self, group: Any, rank: int) -> int:
        return int(group[rank])

    def all_gather_object(self, gathered: list[Any], own: Any, group: Any = None) -> None:
        for rank in range(3):
            gathered[rank] = own if rank == self._rank else self._others.get(rank)


def broadcast(object_list: list[Any], src: int | None = None, group: Any = None, group_src: int | None = None) -> None:
    """A signature of torch's."""


def test_objects_come_from_their_source() -> None:
    # given rank 1 that is to receive from rank 2, when it is broadcast, then the objects are those of rank 2
    objects: list[Any] = [None, None]
    gathering(broadcast, World(1, {2: ["a", {"b": 1}]}))(objects, src=2)
    assert objects == ["a", {"b": 1}]


def test_the_source_may_be_a_rank_of_the_group() -> None:
    # given global rank 7, the first of its group, when it is broadcast, then the group's first rank is the source
    objects: list[Any] = [None]
    gathering(broadcast, World(1, {0: ["x"]}))(objects, 7, group={7: 0})
    assert objects == ["x"]


def test_a_process_that_is_alone_keeps_its_own() -> None:
    # given nobody else, when it is broadcast, then nothing changes
    objects = ["own"]
    gathering(broadcast, World(1, {}))(objects, src=0)
    assert objects == ["own"]


class Line:
    """Messages from one rank to another, in order."""

    def __init__(self) -> None:
        self.messages: list[torch.Tensor] = []

    def send(self, tensor: torch.Tensor, dst: int) -> None:
        self.messages.append(tensor.clone())

    def recv(self, tensor: torch.Tensor, src: int) -> int:
        tensor.copy_(self.messages.pop(0) if self.messages else torch.zeros_like(tensor))
        return src


def send_object_list(object_list: list[Any], dst: int | None = None, device: Any = None) -> None:
    """A signature of torch's."""


def recv_object_list(object_list: list[Any], src: int | None = None, device: Any = None) -> int:
    """A signature of torch's."""
    return 0


def test_objects_are_sent_in_one_piece() -> None:
    # given a line between two ranks, when objects are sent and received, then they are the same
    line, objects = Line(), list[Any]([None, None])
    sending(send_object_list, line)([{"shape": (3, 4)}, "x"], 1, device="cpu")
    assert receiving(recv_object_list, line)(objects, src=0, device="cpu") == 0
    assert objects == [{"shape": (3, 4)}, "x"]


def test_without_a_peer_nothing_is_received() -> None:
    # given nobody who sends, when objects are received, then they are as before
    objects: list[Any] = ["own"]
    receiving(recv_object_list, Line())(objects, 0, device="cpu")
    assert objects == ["own"]
