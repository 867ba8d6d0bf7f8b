"""Serves the Memory tab of TensorBoard: routes over ``tbmem.offline.queries``. Never loads torch."""
