"""Files over SRD messages: what the daemons `srd send` and `srd recv` say to each other."""
