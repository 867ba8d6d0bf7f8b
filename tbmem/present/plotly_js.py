"""The script that the installed plotly brings along comes out, and its version; nothing comes from the network."""

from __future__ import annotations

from importlib import metadata, resources


def plotly_js() -> str:
    """plotly.js, minified."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def plotly_version() -> str:
    """Version of the package that it comes from."""
    return metadata.version("plotly")
