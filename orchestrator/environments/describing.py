"""What an environment pins and what of it was verified, in lines for people."""

from orchestrator.environments.catalogue import EnvironmentEntry


def description(entry: EnvironmentEntry) -> tuple[str, ...]:
    """What the catalogue says about an environment that decides whether to trust it, a line for each part.

    Why it has no lock is not among it: that is the first thing to say of such an environment, not a detail.
    """
    parts = [
        ("platform", entry.platform),
        ("base", entry.base),
        ("base verified", entry.base_verified),
        ("hashes verified", entry.hashes_verified),
    ]
    if entry.cuda is not None:
        parts += [
            ("CUDA", entry.cuda),
            ("cuDNN", entry.cudnn or "unknown"),
            ("minimum driver", entry.minimum_driver or "unknown"),
            ("machine code for", f"{', '.join(entry.compute_capabilities)}; docs/environments.md says what runs it"),
        ]
    if entry.wheel_index is not None:
        parts.append(("wheel index", f"{entry.wheel_index.url} for {', '.join(entry.wheel_index.distributions)}"))
    parts += [
        ("recorded", f"{name} {wheel.version}, confidence {wheel.confidence}: {wheel.source}")
        for name, wheel in entry.recorded.items()
    ]
    parts += [("deviation", one) for one in entry.deviations]
    width = max(len(label) for label, _ in parts) + 1
    return tuple(f"{label + ':':{width}} {text}" for label, text in parts)
