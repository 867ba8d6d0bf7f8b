"""A Keras 3 model on torch with one more callback: everything tbmem does."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import torch

from tbmem.integrations.keras import KerasMemory


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    layers = [keras.layers.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.AdamW(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs, targets = torch.randn(128 * given.steps, 64), torch.randint(10, (128 * given.steps,))

    with KerasMemory(run={"logdir": given.logdir}) as memory:
        model.fit(inputs, targets, batch_size=128, verbose=0, callbacks=[memory])


if __name__ == "__main__":
    main()
