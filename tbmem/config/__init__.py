"""The configuration: schema and loading."""

from tbmem.config.load import ConfigSource, LoadedConfig, load_config, load_with_origins
from tbmem.config.schema import (
    Config,
    EvidenceConfig,
    MonitorConfig,
    OomConfig,
    OutputConfig,
    PatternsConfig,
    ProfilingConfig,
    RunConfig,
    SnapshotConfig,
)

__all__ = [
    "Config",
    "ConfigSource",
    "EvidenceConfig",
    "LoadedConfig",
    "MonitorConfig",
    "OomConfig",
    "OutputConfig",
    "PatternsConfig",
    "ProfilingConfig",
    "RunConfig",
    "SnapshotConfig",
    "load_config",
    "load_with_origins",
]
