"""The Memory tab of TensorBoard: routes that answer with what ``tbmem.offline.queries.answers`` says; torch is never loaded."""
