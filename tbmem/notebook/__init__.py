"""In a notebook: the magic ``%%tbmem``, its live chart, and the Memory tab in an output."""
