"""The identity of the runner's own code."""

import hashlib
import os

import runners


def source_digest() -> str:
    """SHA-256 over the path and content of every Python file of the package, in sorted order."""
    root = os.path.dirname(os.path.abspath(runners.__file__))
    paths = [
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".py")
    ]
    total = hashlib.sha256()
    for path in sorted(paths):
        with open(os.path.join(root, path), "rb") as file:
            content = file.read()
        total.update(b"%s %d\n" % (path.encode(), len(content)))
        total.update(content)
    return total.hexdigest()
