"""Lines of records for tests."""

import zlib


def line_of(text: str | bytes) -> bytes:
    """A line that fits its checksum, whatever else it is: `text` is an object as JSON has it."""
    body = (text.encode() if isinstance(text, str) else text)[:-1]
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)
