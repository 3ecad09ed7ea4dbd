"""Other spellings of a word that sound the same: British and old ones, as American ones.

Each rule changes a part of a word. What comes out means nothing by itself: it is of use where a
dictionary has it, and the word itself not.
"""

from __future__ import annotations

import re

__all__ = ["spelling_variants"]

_VERB = "(?=(?:E|ED|ES|ER|ERS|ING|INGLY|INGS|ABLE|ATION|ATIONS)$)"

# (pattern, replacement), the surest first.
_RULES = (
    (r"(?<=[A-Z])'$", ""),  # SOLDIERS'
    (r"(?<=[A-Z]{2})OUR(?![CDGNT])", "OR"),  # HONOUR, FAVOURITE
    (r"(?<=[A-Z]{2})IS" + _VERB, "IZ"),  # REALISE
    (r"(?<=[A-Z]{2}L)YS" + _VERB, "YZ"),  # ANALYSE
    (r"(?<=[A-Z]{2}[AEIOU])LL(?=(?:ED|ING|INGS|ER|ERS|OR|ORS|OUS|OUSLY|ERY|IST|ISTS|EN)$)", "L"),
    (r"(?<=[A-Z][AEIOU])L(?=(?:NESS|FUL|FULLY|FULNESS|MENT|MENTS)$)", "LL"),  # FULNESS
    (r"(?<=[A-Z]{2}[BCDGTVP])RE(?=(?:S|LY|'S)?$)", "ER"),  # CENTRE, SOMBRELY
    (r"(?<=[A-Z]{2}[BCDGTVP])RED$", "ERED"),  # CENTRED
    (r"(?<=[A-Z]{2})ENC(?=(?:E|ES|ELESS)$)", "ENS"),  # PRETENCE
    (r"(?<=PRACT)IS(?=(?:E|ES|ED|ER|ING)$)", "IC"),
    (r"(?<=[A-Z]{2}L)OGUE(?=S?$)", "OG"),  # CATALOGUE
    (r"(?<=[A-Z]{2})XION(?=S?$)", "CTION"),  # CONNEXION
    (r"(?<=[A-Z]{2})MME(?=S?$)", "M"),  # PROGRAMME
    (r"^ENQUIR", "INQUIR"),
    (r"(?<=DG)MENT", "EMENT"),  # JUDGMENT
    (r"^CHEQUE", "CHECK"),
    (r"^DRI(?=LY$|NESS$)", "DRY"),
    (r"^GAYET", "GAIET"),
    (r"^SYREN", "SIREN"),
    (r"^SHEW", "SHOW"),
    (r"^TYRE(?=S?$)", "TIRE"),
    (r"MOULD", "MOLD"),
    (r"MOULT", "MOLT"),
    (r"PLOUGH", "PLOW"),
    (r"DRAUGHT", "DRAFT"),
    (r"GREY", "GRAY"),
    (r"GAOL", "JAIL"),
    (r"SCEPTIC", "SKEPTIC"),
    (r"WAGGON", "WAGON"),
    (r"STOREY", "STORY"),
    (r"SULPH", "SULF"),
    (r"MANOEUV", "MANEUV"),
    # Not every AE and OE: among names, one in eight sounds as E alone does.
    (r"^AE(?=ON|STHE)", "E"),
    (r"^(F|PR|D)[AO]E(?=TUS|TAL|FECT|MON)", r"\1E"),
    (r"(P|DI|CH)AE(?=D|V|O)", r"\1E"),  # ENCYCLOPAEDIA, MEDIAEVAL, ARCHAEOLOGY
    (r"(?<=[A-Z]{3}S)T$", "SED"),  # EXPREST
)
RULES = tuple((re.compile(pattern), change) for pattern, change in _RULES)


def spelling_variants(word: str) -> list[str]:
    """Return other spellings that the word may have in an American dictionary, surest first.

    >>> spelling_variants("HONOURED"), spelling_variants("SPIRITUALISED")
    (['HONORED'], ['SPIRITUALIZED'])
    >>> spelling_variants("HONOR")
    []
    """
    found: dict[str, None] = {}
    for pattern, change in RULES:
        places = list(pattern.finditer(word))
        for place in places:
            found[word[: place.start()] + place.expand(change) + word[place.end() :]] = None
        if len(places) > 1:
            found[pattern.sub(change, word)] = None
    return list(found)
