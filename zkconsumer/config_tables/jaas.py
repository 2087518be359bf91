"""``sasl.jaas.config``: user and password out of the line that Kafka's Java clients read.  Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice's word";

Java hands such a line to any class that it names.  Here two of them mean something, and the others are refused by name.
No error text holds anything that stood behind ``=``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_UNSUPPORTED_MODULES = {
    "com.sun.security.auth.module.Krb5LoginModule": "for Kerberos set sasl.mechanism=GSSAPI; the ticket is that of the "
    "environment (kinit, or KRB5_CLIENT_KTNAME for a keytab)",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "for tokens set "
    "sasl.mechanism=OAUTHBEARER and give the connector oauth_token=",
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_LINE = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*?)\s*;\s*", re.DOTALL)
_OPTION = re.compile(
    r"\s+(?P<name>\w+)\s*=\s*"
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;\"']+))",
    re.DOTALL,
)


class JaasLogin(NamedTuple):
    """Who logs in.  ``module`` says for which mechanisms."""

    module: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"JaasLogin(module={self.module!r}, username={self.username!r}, password=[hidden])"


def parse_jaas(line: str) -> JaasLogin:
    """Read the line.  Raises ``ValueError`` with what to change."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError('it is not of the form: MODULE required username="…" password="…";')
    module = found["module"]
    if module not in (PLAIN_MODULE, SCRAM_MODULE):
        advice = _UNSUPPORTED_MODULES.get(module, f"only {PLAIN_MODULE} and {SCRAM_MODULE} are known here")
        raise ValueError(f"the login module {module} cannot be used; {advice}")
    if found["flag"] not in _FLAGS:
        raise ValueError(f"behind the login module stands one of {', '.join(_FLAGS)}")
    options = _options(found["options"])
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"{' and '.join(missing)} are missing" if len(missing) > 1 else f"{missing[0]} is missing")
    if options.get("tokenauth", "false") != "false":
        raise ValueError("delegation tokens (tokenauth) are not known here; log in with a user of the broker")
    return JaasLogin(module, options["username"], options["password"])


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while at < len(text):
        option = _OPTION.match(text, at)
        if option is None:
            raise ValueError('behind the login module stand options, each name="value", and a semicolon at the end')
        quoted = option["double"] if option["double"] is not None else option["single"]
        options[option["name"]] = option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = option.end()
    return options
