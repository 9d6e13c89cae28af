"""A shop folder is learnt here from a catalogue: what the shop sells, by what names, and how well its data says so."""
