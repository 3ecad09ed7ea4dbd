"""How words are pronounced: dictionaries, other spellings, and a model of letters and sounds."""
