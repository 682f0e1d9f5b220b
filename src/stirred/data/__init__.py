"""Files and frames: reading, checking, coding, writing. Knows columns; knows no mechanism."""
