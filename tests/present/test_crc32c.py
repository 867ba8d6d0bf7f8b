"""The checksum of TensorBoard's records, against TensorBoard's own."""

from __future__ import annotations

import random

import pytest
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as tensorboards

from tbmem.present.crc32c import crc32c, masked_crc32c, masked_crc32c_of_each


def test_the_standards_check_value() -> None:
    # RFC 3720, appendix B.4, and the usual check string
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 300, 1023, 1024, 1025, 1026, 5000])
def test_agrees_with_tensorboard(length: int) -> None:
    data = random.Random(length).randbytes(length)

    assert masked_crc32c(data) == tensorboards(data)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 300, 1024, 1025])
def test_several_of_one_length_agree_with_tensorboard(length: int) -> None:
    records = [random.Random(seed).randbytes(length) for seed in range(3)]

    assert masked_crc32c_of_each(records) == [tensorboards(record) for record in records]


def test_several_of_different_lengths_agree_with_tensorboard() -> None:
    records = [random.Random(length).randbytes(length) for length in (300, 301, 0, 20)]

    assert masked_crc32c_of_each(records) == [tensorboards(record) for record in records]
