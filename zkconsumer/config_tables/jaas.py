"""``sasl.jaas.config``: reads user and password from the line that Kafka's Java clients use.  Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="alice's word";

Java passes such a line to any class that it names.  Here two classes are supported, and the error names the others.
No error text contains a value from after ``=``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

_UNSUPPORTED_MODULES = {
    "com.sun.security.auth.module.Krb5LoginModule": "for Kerberos set sasl.mechanism=GSSAPI; the environment provides "
    "the ticket (kinit, or KRB5_CLIENT_KTNAME for a keytab)",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "for tokens set "
    "sasl.mechanism=OAUTHBEARER and pass oauth_token= to the connector",
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_LINE = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?P<flag>\w+)(?P<options>.*?)\s*;\s*", re.DOTALL)
_OPTION = re.compile(
    r"\s+(?P<name>\w+)\s*=\s*"
    r"(?:\"(?P<double>(?:[^\"\\]|\\.)*)\"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;\"']+))",
    re.DOTALL,
)


class JaasLogin(NamedTuple):
    """User and password.  ``module`` determines the mechanisms."""

    module: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"JaasLogin(module={self.module!r}, username={self.username!r}, password=[hidden])"


def parse_jaas(line: str) -> JaasLogin:
    """Parse the line.  Raises ``ValueError`` that explains what to change."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError('it is not of the form: MODULE required username="…" password="…";')
    module = found["module"]
    if module not in (PLAIN_MODULE, SCRAM_MODULE):
        advice = _UNSUPPORTED_MODULES.get(module, f"only {PLAIN_MODULE} and {SCRAM_MODULE} are supported here")
        raise ValueError(f"the login module {module} cannot be used; {advice}")
    if found["flag"] not in _FLAGS:
        raise ValueError(f"write one of {', '.join(_FLAGS)} after the login module")
    options = _options(found["options"])
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"{' and '.join(missing)} are missing" if len(missing) > 1 else f"{missing[0]} is missing")
    if options.get("tokenauth", "false") != "false":
        raise ValueError("delegation tokens (tokenauth) are not supported here; log in with a user of the broker")
    return JaasLogin(module, options["username"], options["password"])


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while at < len(text):
        option = _OPTION.match(text, at)
        if option is None:
            raise ValueError('after the login module write options, each name="value", and a semicolon at the end')
        quoted = option["double"] if option["double"] is not None else option["single"]
        options[option["name"]] = option["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        at = option.end()
    return options
