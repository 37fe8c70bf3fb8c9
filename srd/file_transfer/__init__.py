"""File transfer over SRD messages, between the commands `srd send` and `srd recv`."""
