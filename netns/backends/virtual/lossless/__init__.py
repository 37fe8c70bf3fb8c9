"""Switches with a shared buffer and Priority Flow Control (IEEE 802.1Qbb), for the virtual fabric.

Rules.
1. A fabric has such switches when it is given a `SwitchProfile`; without one, nothing here is used.
2. Each direction of a link is an `EgressPort`: queues by class, a rate, then the wire, which is netem's model without
   its rate and limit. A packet leaves when the port is free and its class is not paused; nothing is decided on arrival.
3. A `BufferedSwitch` owns the buffer. A packet counts for the port and class by which it came in, from its arrival
   until its last bit has left. So a congested port pauses all who feed it, whatever else they carry.
4. `SharedBuffer`, `Red` and the profiles know no time and no fabric.
"""
