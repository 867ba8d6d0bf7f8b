"""The data itself and its file codecs: everything above reads and fills these records, and knows no source."""
