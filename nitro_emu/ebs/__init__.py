"""A volume: a block device whose bytes lie on servers, as the card serves it to its host.

    host's client  --NBD-->  nbd/  -->  front  -->  EncryptedDevice  -->  a BlockDevice: on servers, or in memory

Rules.
1. `BlockDevice` is the seam: the front knows no server, and what is below it neither NBD nor a limit.
2. Servers see ciphertext only. The volume's key is in the front's memory, and elsewhere wrapped for one card's key.
3. One writer. Writes of the same block follow each other (`nitro_emu.ebs.order`), so that all replicas end alike.
"""
