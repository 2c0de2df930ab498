"""The settings that a site has for pip and for certificates, for builds in containers and for uv, which ignores pip's.

Standard library alone: `requirements/sync` runs it before anything else is installed.
"""

import configparser
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

# Where pip looks, least important first.
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
# Settings that name a file of this machine: they mean nothing in a container, and the bundle is passed on its own.
_PIP_LOCAL = frozenset({"cert", "client-cert", "cache-dir", "log", "target", "prefix", "user", "require-virtualenv"})
_PIP_VARIABLES = (
    "index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "no-index", "retries", "default-timeout",
)  # fmt: skip
_SYSTEM_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
# What uv calls them. pip takes several values with any white space between them, uv takes find-links with commas.
_UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "no-index": "UV_NO_INDEX",
    "retries": "UV_HTTP_RETRIES",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
_UV_NAMES_OF_FILES = {"extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}


def site_pip_configuration(environment: Mapping[str, str] = os.environ) -> str:
    """The pip settings of this site as one configuration file; empty when there are none."""
    merged = _pip_settings(environment)
    for section in merged.sections():
        for option in list(merged.options(section)):
            if option in _PIP_LOCAL:
                merged.remove_option(section, option)
    if not any(merged.options(section) for section in merged.sections()):
        return ""
    text = io.StringIO()
    merged.write(text)
    return text.getvalue()


def site_ca_bundle(environment: Mapping[str, str] = os.environ, system: str = _SYSTEM_CA_BUNDLE) -> Path | None:
    """The bundle of certificate authorities that this site trusts."""
    candidates = [environment.get("PIP_CERT"), environment.get("SSL_CERT_FILE"), system]
    return next((Path(c) for c in candidates if c and Path(c).is_file()), None)


def uv_environment(environment: Mapping[str, str] = os.environ, *, for_a_lock: bool = False) -> dict[str, str]:
    """The variables with which uv does as this site's pip does; those of uv itself that are set already win.

    Args:
        for_a_lock: leaves out further indexes and directories: a lock would name the files that only this site has,
            and lack those that others have.
    """
    merged = _pip_settings(environment)
    sections = [section for section in ("global", "install") if merged.has_section(section)]
    settings = {option: value.split() for section in sections for option, value in merged.items(section)}
    names = _UV_NAMES if for_a_lock else _UV_NAMES | _UV_NAMES_OF_FILES
    given = {
        name: ("," if option == "find-links" else " ").join(settings[option])
        for option, name in names.items()
        if settings.get(option)
    }
    if "UV_INDEX" in given:
        # To pip all indexes are equal, and hashes say what may be installed.
        given["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    bundle = site_ca_bundle(environment)
    if bundle is not None:
        given["SSL_CERT_FILE"] = str(bundle)
    # A caller that runs inside a virtual environment must not leak it into another interpreter.
    own = {k: v for k, v in environment.items() if k not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}
    return given | own


def _pip_settings(environment: Mapping[str, str]) -> configparser.RawConfigParser:
    """What pip's files say, and its variables over them."""
    merged = configparser.RawConfigParser(default_section="no such section")
    for path in _pip_files(environment):
        merged.read(path, encoding="utf-8")
    for name in _PIP_VARIABLES:
        value = environment.get("PIP_" + name.upper().replace("-", "_"))
        if value:
            if not merged.has_section("global"):
                merged.add_section("global")
            merged.set("global", name, value)
            if merged.has_section("install"):
                merged.remove_option("install", name)
    return merged


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    chosen = environment.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = environment.get("HOME", "~")
    files = [Path(name.replace("~", home)) for name in _PIP_FILES]
    # pip reads the file that is named instead of the user's own, on top of the machine's
    return [files[0], Path(chosen)] if chosen and Path(chosen).exists() else files


if __name__ == "__main__":
    os.execvpe(sys.argv[1], sys.argv[1:], uv_environment())  # noqa: S606
