"""Loader of the TensorBoard plugin, without heavy imports: an error here would end TensorBoard itself."""

from __future__ import annotations

from typing import Any

from tensorboard.plugins import base_plugin


class MemoryPluginLoader(base_plugin.TBLoader):  # type: ignore[misc]
    """Target of the entry point ``tensorboard_plugins``."""

    def load(self, context: Any) -> base_plugin.TBPlugin:
        """The plugin; an exception here is logged by TensorBoard, which goes on without it."""
        from tbmem.plugin.plugin import MemoryPlugin

        return MemoryPlugin(context)
