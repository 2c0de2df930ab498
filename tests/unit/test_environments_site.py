"""Which settings of the site builds and uv get."""

import configparser
import os
from pathlib import Path

from orchestrator.environments.site_settings import site_ca_bundle, site_pip_configuration, uv_environment


def settings(text: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return dict(parser["global"])


def test_the_users_pip_settings_are_found_without_files_of_this_machine(tmp_path: Path):
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text("[global]\nindex-url = of-the-user-%(x)s\ncert = /c.pem\n")
    assert settings(site_pip_configuration({"HOME": str(tmp_path)}))["index-url"] == "of-the-user-%(x)s"
    assert "cert" not in settings(site_pip_configuration({"HOME": str(tmp_path)}))


def test_a_named_file_replaces_the_users_own(tmp_path: Path):
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip/pip.conf").write_text("[global]\ntrusted-host = user.invalid\n")
    named = tmp_path / "named.conf"
    named.write_text("[global]\nindex-url = of-the-named-file\n")
    found = settings(site_pip_configuration({"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(named)}))
    assert found["index-url"] == "of-the-named-file"
    assert "trusted-host" not in found


def test_variables_win_over_files(tmp_path: Path):
    named = tmp_path / "named.conf"
    named.write_text("[global]\nindex-url = of-the-file\n")
    environment = {"PIP_CONFIG_FILE": str(named), "PIP_INDEX_URL": "of-the-variable"}
    assert settings(site_pip_configuration(environment))["index-url"] == "of-the-variable"


def test_no_settings_at_all():
    assert site_pip_configuration({"PIP_CONFIG_FILE": os.devnull}) == ""


def test_the_sites_own_bundle_comes_before_the_systems(tmp_path: Path):
    own, system = tmp_path / "own.pem", tmp_path / "system.pem"
    system.write_text("x")
    assert site_ca_bundle({"PIP_CERT": str(own)}, str(system)) == system
    own.write_text("x")
    assert site_ca_bundle({"PIP_CERT": str(own)}, str(system)) == own
    assert site_ca_bundle({}, str(tmp_path / "none.pem")) is None


def test_uv_does_as_pip_does_unless_its_own_variables_say_otherwise(tmp_path: Path):
    named = tmp_path / "named.conf"
    lines = ["[global]", "index-url = file:///main", "extra-index-url =", "  file:///a", "  file:///b", "timeout = 7"]
    named.write_text("\n".join([*lines, "[install]", "find-links = /x /y", "trusted-host = h:1", ""]))
    bundle = tmp_path / "own.pem"
    bundle.write_text("x")
    pip = {"PIP_CONFIG_FILE": str(named), "PIP_CERT": str(bundle), "PIP_TRUSTED_HOST": "other", "VIRTUAL_ENV": "/v"}
    expected = {
        "UV_DEFAULT_INDEX": "file:///main",
        "UV_INDEX": "file:///a file:///b",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/x,/y",
        "UV_INSECURE_HOST": "other",
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CERT_FILE": str(bundle),
    }
    given = uv_environment(pip)
    assert {name: given.get(name) for name in expected} == expected
    assert "VIRTUAL_ENV" not in given
    own = {"UV_INDEX": "mine", "SSL_CERT_FILE": "mine.pem"}
    assert uv_environment(pip | own).items() >= own.items()
    # a lock would name the files that only this site has
    for_a_lock = uv_environment(pip, for_a_lock=True)
    assert for_a_lock["UV_DEFAULT_INDEX"] == "file:///main"
    assert not for_a_lock.keys() & {"UV_INDEX", "UV_FIND_LINKS"}
