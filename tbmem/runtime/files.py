"""What writes whole files or none, for those that know it under this name: see ``tbmem.model.whole_file``."""

from __future__ import annotations

from tbmem.model.whole_file import complete_or_nothing, compress

__all__ = ["complete_or_nothing", "compress"]
