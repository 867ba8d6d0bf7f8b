"""Seeds for programs that have none, so that two runs of one can be compared."""

import random

import numpy as np
import torch

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
