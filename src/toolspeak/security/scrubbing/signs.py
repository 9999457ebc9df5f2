"""What stands between a name and its value, and around them."""

from __future__ import annotations

import re

_CLOSED = r"""(?P<closed>\\*["'`]|&(?:quot|apos|\#34|\#39);)"""
_COLOURS = r"(?:(?:\x1b|\\+(?:u001[bB]|x1[bB]|033|e))\[[\d;]{0,16}m){0,3}"
ASSIGNED = re.compile(
    rf"""{_COLOURS}{_CLOSED}?\]?(?P<spaces>[ \t]{{0,16}})
    (?::[ ]?[\w.\[\]|<>?, ]{{1,48}}(?==[ ]))?                 # password: str = …
    (?P<sign>=>|:=|={{1,3}}|:(?!:|//)){_COLOURS}
    (?P<gap>(?:[ \t]*[|>][+-]?[ \t\r]*\n)?\s{{0,64}}){_COLOURS}""",
    re.VERBOSE,
)

PAIRED = re.compile(
    rf"""{_CLOSED}?\s{{0,16}},?\s{{0,64}}\\*["']?[Vv]alue\\*["']?\s{{0,8}}[:=]\s{{0,8}}""",
    re.VERBOSE,
)
"""`"name": "DB_PASSWORD", "value": …`"""
NAMES_PAIR = re.compile(r"""(?i)\b(?:name|key|id)\\*["']?\s{0,8}[:=]\s{0,8}\\*["']?$""")
"""What stands before such a name."""

LISTED = re.compile(rf"""{_CLOSED},[ ]?[a-z]?(?=\\*["'])""", re.VERBOSE)
"""`("Authorization", …)`"""
BEGINS_LIST = re.compile(r"""\([a-z]?\\*["']$""")
"""What stands before such a name, and after its value: in a longer list, it is not its value."""
ENDS_LIST = re.compile(r"""\\*["']\s{0,16}\)""")

TAGGED = re.compile(r"""(?:\s[^<>]{0,64})?>\s{0,64}""")
TAG_NAMED = re.compile(r"""\\*["'](?:\s[^<>]{0,64})?>\s{0,64}""")
"""`<string name="api_key">…`"""
PLIST = re.compile(r"""</key>\s{0,64}<string>\s{0,64}""")
"""`<key>password</key><string>…`"""
FLAGGED = re.compile(r"""[ \t]{1,4}(?!-)""")
SQL = re.compile(r"""[ \t]{1,4}(?=')""")
LOGIN = re.compile(r"""login[ \t]+\S{1,64}\s+$""")
"""`login bob password …` of a .netrc."""

COLOUR = re.compile(r"""(?:\d{1,3}m)?""")
"""The end of a colour, right before a name: `\\x1b[33m`."""
PREFIX = re.compile(r"""(?:[rRbBuUfF@$]{1,2}(?=["'`]))?""")
"""What a language writes before a string."""
TEMPLATE = re.compile(r"""[bB]?[rRfF][bB]?["'][^{(\[\\]*+[{(\[\\]""")
"""A regular expression, or a text that is filled in."""
AFTER_STRING = tuple(",}]:+.) \t\n\r")
"""What stands first behind a string that ends where one seems to begin."""
STRING_ENDS = re.compile(r"""[rRbBuUfF@$]{0,2}\\*"[\s,}\]:]""")
"""The end of a string of JSON, where a value would begin."""

JAR = re.compile(r"""\[\s{0,64}\{""")
JAR_VALUE = re.compile(r"""(?P<backslashes>\\{0,15})"value\\*"\s{0,8}:\s{0,8}\\*["]""")
JAR_ENDS = re.compile(r"""\}\s{0,64}\]|\Z""")
"""`"cookies": [{"name": "sid", "value": …}]`"""

PHRASE = re.compile(r"""(?:\w{2,24}[ ]){2,23}\w{2,24}[ \t\r]*(?:\n|$)""")
LIST = re.compile(r"""\[\s{0,64}|-[ ]{1,4}""")
NEXT_ITEM = re.compile(r"""\\*["'`]?\s{0,64},?\s{0,64}(?:-\s{1,4})?""")
