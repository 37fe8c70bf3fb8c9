"""A hostile program at one virtual function of a card, beside programs at others: do these notice anything?"""
