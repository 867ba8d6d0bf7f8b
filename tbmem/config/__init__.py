"""The configuration: schema and loading."""

from tbmem.config.load import ConfigSource as ConfigSource
from tbmem.config.load import LoadedConfig as LoadedConfig
from tbmem.config.load import load_config as load_config
from tbmem.config.load import load_with_origins as load_with_origins
from tbmem.config.schema import Config as Config
from tbmem.config.schema import EvidenceConfig as EvidenceConfig
from tbmem.config.schema import MonitorConfig as MonitorConfig
from tbmem.config.schema import OomConfig as OomConfig
from tbmem.config.schema import OutputConfig as OutputConfig
from tbmem.config.schema import PatternsConfig as PatternsConfig
from tbmem.config.schema import ProfilingConfig as ProfilingConfig
from tbmem.config.schema import RunConfig as RunConfig
from tbmem.config.schema import SnapshotConfig as SnapshotConfig
