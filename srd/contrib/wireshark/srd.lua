-- SPDX-License-Identifier: GPL-2.0-or-later
-- Wireshark's dissector for SRD, the Scalable Reliable Datagram over UDP (srd/PROTOCOL.md, version 5).
--
--     tshark -X lua_script:srd.lua -o udp.try_heuristic_first:TRUE -r capture.pcapng
--     cp srd.lua ~/.local/lib/wireshark/plugins/        and restart Wireshark
--
-- Theory of operation.
-- 1. A packet is a prefix of 16 bytes and a body. PREFIX and BODIES describe all fields; srd/proto/wire/fields.py is
--    the same table, and tests compare the two. `parse` reads a body by it, `CHECKS` has what else makes a packet
--    malformed: exactly what the project's own decoder refuses. Both only read, so the heuristic uses them, too.
-- 2. UDP at the default port is SRD; an endpoint has one port for each path, so that most packets have others. These
--    are found by their form (the heuristic). One of many random ports may be another protocol's, hence the option.
-- 3. Each direction of a peer is named by the 64-bit context in its packets. HELLO, ACCEPT, PROBE, CLOSE ... have both
--    contexts, so the two directions become one conversation, `srd.stream`. With encryption only the handshake shows
--    both ends; the responder's context is then inferred from the first encrypted packet that follows it.
-- 4. A PSN names a packet's content for ever, and (path, path sequence) one transmission. So a PSN that was seen before
--    with another path sequence is a retransmission; the same path sequence is the same datagram again.
-- 5. What is found at the first pass over a capture is kept by frame, as Wireshark dissects a frame whenever it is shown.
-- 6. An ICMP error quotes the packet that it is about: that one is shown, but was not sent once more.
-- 7. Captures show what the kernel joined (GSO, GRO) as one datagram: it is split where the next header is.

local srd = Proto("srd", "Scalable Reliable Datagram")

local VERSION, PREFIX_BYTES, HEADER_BYTES, TAG_BYTES = 6, 16, 56, 16
local MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES, MIN_WINDOW_PACKETS = 576, 65507, 64
local MAX_COOKIE_BYTES, MAX_CREDENTIAL_BYTES, MAX_PATHS = 64, 960, 128
local OPCODE, IMMEDIATE, ABORTED, WITH_ACK, KEY_PHASE = 0x03, 0x04, 0x08, 0x10, 0x80
local PORTS = "19870,19875" -- the default, and that of emulated cards
local MAX_RANGES = 32 -- that are listed

local TYPES = {
  [1] = "DATA", [2] = "ACK", [3] = "HELLO", [4] = "RETRY", [5] = "ACCEPT", [6] = "REFUSE", [7] = "PROBE",
  [8] = "CLOSE", [9] = "CLOSED", [10] = "RESET", [11] = "NACK", [12] = "PATH_CHALLENGE", [13] = "PATH_RESPONSE",
  [14] = "SECURE_ACCEPT", [15] = "PROTECTED", [16] = "PULL_REQUEST", [17] = "PULL",
}
local OPCODES = { [0] = "SEND", [1] = "READ", [2] = "WRITE", [3] = "RESPONSE" }
local SECURITY = { [0] = "PLAIN", [1] = "PSK", [2] = "KEYS", [3] = "CERT" }
local REASONS = {
  [0] = "NONE", [1] = "NEEDS_PLAIN", [2] = "NEEDS_PSK", [3] = "NEEDS_KEYS", [4] = "NEEDS_CERT", [254] = "TOO_SMALL",
  [255] = "NOT_AUTHORIZED",
}
local STATUSES = {
  [0] = "OK", [1] = "FLUSHED", [2] = "LOCAL_ERROR_QP_INTERNAL_ERROR", [3] = "LOCAL_ERROR_UNSUPPORTED_OP",
  [4] = "LOCAL_ERROR_INVALID_AH", [5] = "LOCAL_ERROR_INVALID_LKEY", [6] = "LOCAL_ERROR_BAD_LENGTH",
  [7] = "REMOTE_ERROR_BAD_ADDRESS", [8] = "REMOTE_ERROR_ABORT", [9] = "REMOTE_ERROR_BAD_DEST_QPN",
  [10] = "REMOTE_ERROR_RNR", [11] = "REMOTE_ERROR_BAD_LENGTH", [12] = "REMOTE_ERROR_BAD_STATUS",
  [13] = "LOCAL_ERROR_UNRESP_REMOTE", [14] = "REMOTE_ERROR_UNKNOWN_PEER", [15] = "LOCAL_ERROR_UNREACH_REMOTE",
  [18] = "REMOTE_ERROR_FEATURE_MISMATCH",
}

-- -- the table of fields --------------------------------------------------------------------------------------------
-- {name, size, label, options}. Size: a number of bytes; the name of an earlier field; or REST. Options: `names` of
-- values, `id` for identifiers (hexadecimal), `only_if` an earlier field is not 0, `records`, `bytes` for no number.

local REST = true
local PREFIX = {
  { "version", 1, "Version" },
  { "type", 1, "Packet type", { names = TYPES } },
  { "flags", 1, "Flags", { id = true } },
  { "path", 1, "Path (source port) of the sender" },
  { "path_sequence", 4, "Sequence number on this path" },
  { "context", 8, "Context of the receiver", { id = true } },
}
local REPORT = {
  { "path", 1, "Path" },
  { "reserved", 3, "Reserved", { bytes = true } },
  { "path_sequence", 4, "Highest sequence number received on it" },
  { "sent_us", 4, "Send time of that packet, echoed (us)" },
  { "ack_delay_us", 4, "Ack delay (us)" },
  { "packets", 4, "Packets received on this path in all" },
  { "duplicates", 2, "Of these, duplicates" },
  { "ecn_ce", 2, "Of these, with a congestion mark (ECN CE)" },
  { "received_us", 4, "Receive time of that packet (us)" },
}
local OWN_CONTEXT = { "own_context", 8, "Context of the sender", { id = true } }
local PADDING = { "padding", REST, "Padding" }
local LIMITS = {
  OWN_CONTEXT,
  { "credit_bytes", 8, "Credit: bytes that may be sent" },
  { "credit_messages", 4, "Credit: messages that may be sent" },
  { "max_message_bytes", 4, "Longest message that the sender accepts" },
  { "window_packets", 4, "Receive window (packets)" },
  { "datagram_bytes", 2, "Datagram size" },
}

local function joined(first, second)
  local all = {}
  for _, field in ipairs(first) do all[#all + 1] = field end
  for _, field in ipairs(second) do all[#all + 1] = field end
  return all
end

local BODIES = {
  DATA = {
    { "psn", 8, "Packet sequence number (PSN)" },
    { "sent_us", 4, "Send time (us)" },
    { "message", 4, "Message number" },
    { "length", 4, "Length of the whole message" },
    { "immediate", 4, "Immediate" },
    { "offset", 8, "Offset" },
    { "key", 8, "Key", { id = true } },
    { "payload", REST, "Payload" },
  },
  ACK = {
    { "cumulative", 8, "Cumulative ack: all PSNs below were received" },
    { "credit_bytes", 8, "Credit: message bytes that may be started in all" },
    { "credit_messages", 8, "Credit: messages that may be started in all" },
    { "bitmap_length", 2, "Length of the bitmap" },
    { "report_count", 1, "Number of path reports" },
    { "flags", 1, "Flags", { id = true } },
    { "remote_path", 1, "Path of the receiver that it is sent to" },
    { "reserved", 3, "Reserved", { bytes = true } },
    { "reports", "report_count", "Path reports", { records = REPORT } },
    { "bitmap", "bitmap_length", "Bitmap of received PSNs (selective ack)" },
  },
  HELLO = joined(LIMITS, {
    { "cookie_length", 1, "Length of the cookie" },
    { "security", 1, "Security mode", { names = SECURITY } },
    { "source_digest", 8, "Digest of the source address", { id = true } },
    { "paths", 1, "Primary paths" },
    { "cookie", "cookie_length", "Cookie" },
    { "message_length", 2, "Length of the handshake message", { only_if = "security" } },
    { "message", "message_length", "Handshake message", { only_if = "security" } },
    PADDING,
  }),
  RETRY = {
    { "cookie_length", 1, "Length of the cookie" },
    { "cookie", "cookie_length", "Cookie, to be returned" },
    { "credential_length", 2, "Length of the credential" },
    { "credential", "credential_length", "Credential (public key or certificate)" },
    PADDING,
  },
  ACCEPT = joined(LIMITS, { { "behind_nat", 1, "Behind a NAT" } }),
  REFUSE = { { "status", 1, "Status", { names = STATUSES } }, { "reason", 1, "Reason", { names = REASONS } } },
  PROBE = {
    OWN_CONTEXT,
    { "sent_us", 4, "Send time (us)" },
    { "ack_path", 1, "Ack path: path of its sender" },
    { "ack_remote_path", 1, "Ack path: path of its receiver" },
    PADDING,
  },
  CLOSE = { OWN_CONTEXT },
  CLOSED = { OWN_CONTEXT },
  RESET = { OWN_CONTEXT, { "token", REST, "Reset token" } },
  NACK = { { "message", 4, "Message number" }, { "status", 1, "Status", { names = STATUSES } } },
  PATH_CHALLENGE = {
    { "token", 8, "Token", { id = true } },
    { "remote_path", 1, "Path of the receiver that is tested" },
  },
  PATH_RESPONSE = { { "token", 8, "Token of the challenge", { id = true } } },
  SECURE_ACCEPT = { { "message", REST, "Handshake message" } },
  PROTECTED = { { "data", REST, "Encrypted control packet" } },
  PULL_REQUEST = {
    { "sent_bytes", 8, "Data sent in all (bytes)" },
    { "backlog_bytes", 8, "Data that waits (bytes)" },
    { "number", 8, "Number of the last PULL received" },
  },
  PULL = {
    { "limit_bytes", 8, "Data that may be sent in all (bytes)" },
    { "number", 8, "Number of this PULL" },
    { "unsolicited_bytes", 4, "Data that may be in flight without a PULL (bytes)" },
  },
}

-- -- fields and expert infos of Wireshark ---------------------------------------------------------------------------

local NUMBERS = { [1] = ProtoField.uint8, [2] = ProtoField.uint16, [4] = ProtoField.uint32, [8] = ProtoField.uint64 }
local registered = {}
local shown = {} -- by the field's table, for each packet type: srd.TYPE.NAME; of the prefix: srd.NAME

local function define(fields, prefix)
  local made = {}
  for _, field in ipairs(fields) do
    local name, size, label, options = field[1], field[2], field[3], field[4] or {}
    local abbreviation = prefix .. "." .. name
    if options.records then
      made[name] = { records = define(options.records, abbreviation:sub(1, -2)) }
    elseif type(size) ~= "number" or options.bytes then
      made[name] = { proto_field = ProtoField.bytes(abbreviation, label) }
    else
      local display = options.id and base.HEX or base.DEC
      made[name] = { proto_field = NUMBERS[size](abbreviation, label, display, options.names) }
    end
    registered[#registered + 1] = made[name].proto_field
  end
  return made
end

local PREFIX_FIELDS = define(PREFIX, "srd")
for kind, fields in pairs(BODIES) do shown[kind] = define(fields, "srd." .. kind:lower()) end

local function also(proto_field)
  registered[#registered + 1] = proto_field
  return proto_field
end

local F = {
  opcode = also(ProtoField.uint8("srd.data.opcode", "Opcode", base.DEC, OPCODES, OPCODE)),
  immediate = also(ProtoField.bool("srd.data.has_immediate", "IMMEDIATE: the immediate is the sender's", 8, nil, IMMEDIATE)),
  aborted = also(ProtoField.bool("srd.data.aborted", "ABORTED: the sender gave the message up", 8, nil, ABORTED)),
  with_ack = also(ProtoField.bool("srd.data.with_ack", "WITH_ACK: an ACK follows the payload", 8, nil, WITH_ACK)),
  key_phase = also(ProtoField.bool("srd.key_phase", "Key phase", 8, nil, KEY_PHASE)),
  not_ready = also(ProtoField.bool("srd.ack.not_ready", "NOT_READY: data was dropped for lack of memory", 8, nil, 1)),
  abort_status = also(ProtoField.uint32("srd.data.status", "Status that the message was aborted with", base.DEC, STATUSES)),
  ciphertext = also(ProtoField.bytes("srd.data.ciphertext", "Encrypted payload")),
  tag = also(ProtoField.bytes("srd.tag", "Authentication tag")),
  unused = also(ProtoField.bytes("srd.unused", "Unused bytes")),
  stream = also(ProtoField.uint32("srd.stream", "Conversation")),
  peer_context = also(ProtoField.uint64("srd.peer_context", "Context of the other direction", base.HEX)),
  received = also(ProtoField.string("srd.ack.received", "PSNs received beyond the cumulative ack")),
  missing = also(ProtoField.string("srd.ack.missing", "PSNs missing before the highest one received")),
  report_frame = also(ProtoField.framenum("srd.ack.report.frame", "It reports the packet in frame", base.NONE, frametype.ACK)),
  report_rtt = also(ProtoField.relative_time("srd.ack.report.rtt", "Time since that frame, less the ack delay")),
  retransmission_of = also(ProtoField.framenum("srd.analysis.retransmission_of", "Sent before in frame", base.NONE, frametype.RETRANS_PREV)),
  retransmission_after = also(ProtoField.relative_time("srd.analysis.retransmission_after", "Time since that frame")),
  transmissions = also(ProtoField.uint32("srd.analysis.transmissions", "Times that this PSN was sent so far")),
  acked_in = also(ProtoField.framenum("srd.analysis.acked_in", "Already acknowledged in frame", base.NONE, frametype.ACK)),
  duplicate_of = also(ProtoField.framenum("srd.analysis.duplicate_of", "The same datagram as in frame", base.NONE, frametype.DUP_ACK)),
  gap = also(ProtoField.uint32("srd.analysis.gap", "Packets of this path that are missing before this one")),
}
srd.fields = registered

local E = {
  malformed = ProtoExpert.new("srd.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR),
  cut = ProtoExpert.new("srd.cut", "Packet size limited during capture", expert.group.UNDECODED, expert.severity.NOTE),
  retransmission = ProtoExpert.new("srd.analysis.retransmission", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
  spurious = ProtoExpert.new("srd.analysis.spurious_retransmission", "Spurious retransmission", expert.group.SEQUENCE, expert.severity.NOTE),
  duplicate = ProtoExpert.new("srd.analysis.duplicate", "Duplicate datagram", expert.group.SEQUENCE, expert.severity.NOTE),
  duplicates_reported = ProtoExpert.new("srd.analysis.duplicates_reported", "The receiver reports duplicates", expert.group.SEQUENCE, expert.severity.NOTE),
  gap = ProtoExpert.new("srd.analysis.previous_not_captured", "Earlier packets of this path are missing", expert.group.SEQUENCE, expert.severity.NOTE),
  out_of_order = ProtoExpert.new("srd.analysis.out_of_order", "Out of order on its path", expert.group.SEQUENCE, expert.severity.NOTE),
  not_ready = ProtoExpert.new("srd.ack.receiver_not_ready", "Receiver not ready", expert.group.SEQUENCE, expert.severity.WARN),
  aborted = ProtoExpert.new("srd.data.message_aborted", "Message aborted by its sender", expert.group.SEQUENCE, expert.severity.WARN),
  refused = ProtoExpert.new("srd.refused", "Refused", expert.group.RESPONSE_CODE, expert.severity.WARN),
  reset = ProtoExpert.new("srd.reset_received", "The other end does not know this peer", expert.group.SEQUENCE, expert.severity.WARN),
}
local ICMP_TYPES = { Field.new("icmp.type"), Field.new("icmpv6.type") } -- in a frame: what follows is quoted
local experts = {}
for _, each in pairs(E) do experts[#experts + 1] = each end
srd.experts = experts

-- -- parsing: reads only -------------------------------------------------------------------------------------------

-- Read fields of `tvb` from `at` up to `stop`. Returns the offset behind them, or nil and the name of what is cut short.
-- `out` gets, by name, where each is, and the value `n` of those of up to four bytes.
local function parse(tvb, at, stop, fields, out)
  for _, field in ipairs(fields) do
    local name, size, options = field[1], field[2], field[4] or {}
    if options.records then
      local list = {}
      for index = 1, out[size].n do
        list[index] = {}
        at = parse(tvb, at, stop, options.records, list[index])
        if not at then return nil, name end
      end
      out[name] = list
    elseif not options.only_if or out[options.only_if].n ~= 0 then
      if size == REST then size = stop - at elseif type(size) == "string" then size = out[size].n end
      if at + size > stop then return nil, name end
      local is_small = type(field[2]) == "number" and size <= 4 and not options.bytes
      out[name] = { at = at, size = size, n = is_small and tvb(at, size):uint() or nil }
      at = at + size
    end
  end
  return at
end

local function is_zero(tvb, value)
  return value.size == 0 or not tvb:raw(value.at, value.size):find("[^\0]")
end

-- Whether the prefix has nothing but what such a packet uses; others have no meaning for the rest.
local function uses_only(packet, path_is_used)
  local prefix, context = packet.prefix, packet.kind == "HELLO" and packet.context or nil
  return prefix.flags.n == 0 and prefix.path_sequence.n == 0 and (path_is_used or prefix.path.n == 0)
    and (not context or context == ("\0"):rep(8))
end

local function check_window(body)
  local window = body.window_packets.n
  if window < MIN_WINDOW_PACKETS then return "a window of " .. window .. " packets is less than " .. MIN_WINDOW_PACKETS end
end

-- What makes a packet malformed beside being cut short: a reason, or nil.
local CHECKS = {
  DATA = function(packet)
    local flags, body = packet.prefix.flags.n, packet.body
    if flags % 128 >= 32 then return "flags that do not exist" end
    if flags % 32 >= WITH_ACK and (flags % 4 ~= 0 or flags % 16 >= ABORTED) then return "an ACK with what is no SEND" end
    if packet.prefix.path.n >= MAX_PATHS then return "path " .. packet.prefix.path.n .. " does not exist" end
    local is_tag = packet.is_encrypted ~= false and body.payload.size == TAG_BYTES
    local has_payload = body.payload.size > 0 and not is_tag
    if packet.is_encrypted and body.payload.size < TAG_BYTES then return "an encrypted packet without its tag" end
    if has_payload and (flags % 4 == 1 or flags % 16 >= ABORTED) then
      return "payload in a packet that has none (READ or ABORTED)"
    end
  end,
  ACK = function(packet, tvb)
    local bitmap = packet.body.bitmap
    if packet.unused > 0 then return packet.unused .. " bytes behind the bitmap" end
    if bitmap.size > 0 and tvb(bitmap.at, 1):uint() % 2 == 1 then return "the bitmap names the cumulative ack as received" end
  end,
  HELLO = function(packet, tvb)
    local body = packet.body
    if packet.size ~= body.datagram_bytes.n then
      return "a HELLO for datagrams of " .. body.datagram_bytes.n .. " bytes has " .. packet.size
    end
    if not uses_only(packet, true) or not is_zero(tvb, body.padding) then return "reserved bits are set" end
    if body.paths.n == 0 then return "no paths" end
    return body.datagram_bytes.n < MIN_DATAGRAM_BYTES and "a datagram size of less than " .. MIN_DATAGRAM_BYTES
      or check_window(body)
  end,
  RETRY = function(packet, tvb)
    local body = packet.body
    if body.cookie.size > MAX_COOKIE_BYTES then return "a cookie of " .. body.cookie.size .. " bytes" end
    if body.credential.size > MAX_CREDENTIAL_BYTES then return "a credential of " .. body.credential.size .. " bytes" end
    if not uses_only(packet, true) or not is_zero(tvb, body.padding) then return "reserved bits are set" end
  end,
  ACCEPT = function(packet)
    local size = packet.body.datagram_bytes.n
    if size < MIN_DATAGRAM_BYTES or size > MAX_DATAGRAM_BYTES then return "a datagram size of " .. size end
    return check_window(packet.body)
  end,
  REFUSE = function(packet)
    local is_ours = packet.prefix.version.n == VERSION
    if is_ours and (not packet.body.reason or packet.unused > 0) then return "a REFUSE of " .. packet.size .. " bytes" end
    if is_ours and not uses_only(packet) then return "reserved bits are set" end
  end,
  RESET = function(packet) if not uses_only(packet) then return "reserved bits are set" end end,
  SECURE_ACCEPT = function(packet) if not uses_only(packet) then return "reserved bits are set" end end,
  PROTECTED = function(packet)
    if packet.size < 2 * PREFIX_BYTES + TAG_BYTES then return "too short for an encrypted packet" end
    if packet.prefix.flags.n % 128 ~= 0 or packet.prefix.path.n ~= 0 then return "reserved bits are set" end
  end,
}

-- The packet that begins at `at`, with a `reason` if it is malformed.
local function packet_at(tvb, at, stop, is_encrypted)
  local packet = { at = at, size = stop - at, prefix = {}, body = {}, unused = 0, is_encrypted = is_encrypted }
  local body_at, missing = parse(tvb, at, stop, PREFIX, packet.prefix)
  if not body_at then
    packet.reason, packet.is_short = packet.size .. " bytes are no packet: the shortest has 16", true
    return packet
  end
  packet.kind, packet.context = TYPES[packet.prefix.type.n], tvb:raw(at + 8, 8)
  if not packet.kind then
    packet.reason = "packet type " .. packet.prefix.type.n .. " is unknown"
  elseif packet.prefix.version.n ~= VERSION and packet.kind ~= "REFUSE" then
    packet.reason = "version " .. packet.prefix.version.n .. " is not " .. VERSION
    packet.is_foreign = true
  else
    local behind
    behind, missing = parse(tvb, body_at, stop, BODIES[packet.kind], packet.body)
    if packet.kind == "REFUSE" and missing == "reason" then behind = stop end -- other versions have none
    packet.unused = behind and stop - behind or 0
    if not behind then
      packet.reason, packet.is_short = packet.size .. " bytes are too few: " .. missing .. " is cut short", true
    elseif CHECKS[packet.kind] then
      packet.reason = CHECKS[packet.kind](packet, tvb)
    end
  end
  return packet
end

-- -- splitting what the kernel joined -------------------------------------------------------------------------------

local function big_endian(number)
  return string.char(math.floor(number / 2 ^ 24) % 256, math.floor(number / 2 ^ 16) % 256,
    math.floor(number / 2 ^ 8) % 256, number % 256)
end

-- Where the next packet of a segment train begins: its path and context are the same, its path sequence is one higher.
local function next_of_train(tvb, at, stop, least)
  local raw = tvb:raw(at, stop - at)
  local sequence = big_endian((tvb(at + 4, 4):uint() + 1) % 2 ^ 32)
  local wanted, from = raw:sub(4, 4) .. sequence .. raw:sub(9, 16), least + 4
  while true do
    local found = raw:find(wanted, from, true)
    if not found then return stop end
    if raw:sub(found - 3, found - 2) == raw:sub(1, 2) then return at + found - 4 end
    from = found + 1
  end
end

-- Where the ACK behind a message begins, if there is one in plain text.
local function ack_behind(tvb, at, stop)
  if stop - at <= HEADER_BYTES or tvb(at + 2, 1):uint() % 32 < WITH_ACK then return end
  local behind = at + HEADER_BYTES + tvb(at + 32, 4):uint()
  if behind + PREFIX_BYTES > stop then return end
  local is_ack = tvb:raw(behind, 2) == string.char(VERSION, 2) and tvb:raw(behind + 8, 8) == tvb:raw(at + 8, 8)
  return is_ack and behind
end

-- Where the packet at `at` ends.
local function end_of(tvb, at, stop)
  if stop - at <= PREFIX_BYTES or tvb(at, 1):uint() ~= VERSION then return stop end
  local kind = TYPES[tvb(at + 1, 1):uint()]
  local ack_at = kind == "DATA" and ack_behind(tvb, at, stop)
  if ack_at then return ack_at end
  local least = kind == "DATA" and HEADER_BYTES or kind == "PROTECTED" and 2 * PREFIX_BYTES + TAG_BYTES
  if least then return stop - at < least and stop or next_of_train(tvb, at, stop, least) end
  local packet = packet_at(tvb, at, stop)
  local behind = stop - packet.unused
  if packet.unused < PREFIX_BYTES or packet.kind == "REFUSE" then return stop end
  local has_next = tvb:raw(behind, 2) == tvb:raw(at, 2) or packet.kind == "ACK" and tvb:raw(behind, 2) == string.char(VERSION, 1)
  local is_next = has_next and tvb:raw(behind + 8, 8) == packet.context
  return is_next and behind or stop
end

-- -- conversations, and what was seen before ------------------------------------------------------------------------

local state

function srd.init()
  state = {
    directions = {}, -- by context: { stream, context, peer, paths, acked_below, acked }
    streams = 0,
    handshakes = {}, -- initiators of encrypted conversations whose responder's context is not known yet
    transmissions = {}, -- by path, path sequence and context, as raw bytes: the first frame and its time
    psns = {}, -- by context and PSN, as raw bytes: the last frame, its time, and how many there were
    repeated = {}, -- of packets without a number: by their content
    results = {}, -- by frame and offset: what the first pass found
  }
end

local function direction_of(context, stream)
  local direction = state.directions[context]
  if not direction then
    if not stream then
      stream = { number = state.streams }
      state.streams = state.streams + 1
    end
    direction = { context = context, paths = {}, stream = stream }
    state.directions[context] = direction
  end
  return direction
end

-- Note that two contexts are those of one conversation.
local function pair(one, other)
  local a = direction_of(one)
  local b = direction_of(other, not a.peer and a.stream or nil)
  if a == b or a.peer or b.peer then return end
  a.peer, b.peer = b, a
  local kept, dropped = a.stream, b.stream
  if dropped.number < kept.number then kept, dropped = dropped, kept end
  kept.is_whole = kept.is_whole or dropped.is_whole
  if kept.security == nil then kept.security = dropped.security end
  a.stream, b.stream = kept, kept
end

-- Find whose first encrypted packet this is: of the initiator at this host which wrote to this address last.
local function infer_peer(direction, pinfo)
  local from, to = tostring(pinfo.src), tostring(pinfo.dst) .. ":" .. pinfo.dst_port
  for index = #state.handshakes, 1, -1 do
    local handshake = state.handshakes[index]
    if handshake.from == from and handshake.to == to and handshake.context ~= direction.context then
      pair(handshake.context, direction.context)
      direction.stream.is_inferred = true
      table.remove(state.handshakes, index)
      return
    end
  end
end

local function raw_of(tvb, value) return tvb:raw(value.at, value.size) end

-- Learn from a packet which contexts belong together, and what both ends agreed on.
local function learn(packet, tvb, pinfo)
  local kind, body = packet.kind, packet.body
  local own = body.own_context and raw_of(tvb, body.own_context)
  if kind == "HELLO" then
    local direction = direction_of(own)
    direction.stream.security = body.security.n ~= 0
    direction.hello = { from = tostring(pinfo.src), to = tostring(pinfo.dst) .. ":" .. pinfo.dst_port, context = own }
    return direction
  end
  local is_nobodys = packet.context == ("\0"):rep(8) -- a RESET with a token
  local direction = direction_of(is_nobodys and own or packet.context)
  if own and not is_nobodys then pair(packet.context, own) end
  if kind == "ACCEPT" then direction.stream.is_whole = true end
  if kind == "SECURE_ACCEPT" and direction.hello and not direction.peer then
    state.handshakes[#state.handshakes + 1], direction.hello = direction.hello, nil
  end
  local is_encrypted = kind == "PROTECTED" or (kind == "DATA" and packet.prefix.flags.n >= KEY_PHASE)
  if is_encrypted then
    if not direction.peer then infer_peer(direction, pinfo) end
    direction.stream.security = true
  end
  return direction
end

local function is_acked(direction, psn)
  if not direction.acked_below then return false end
  if psn < direction.acked_below then return true end
  for _, range in ipairs(direction.acked) do
    if psn >= range.first and psn <= range.last then return true end
  end
  return false
end

-- Note one transmission; tell whether the path's packets before it are missing, or this one is late.
local function on_path(packet, direction, result)
  local path, sequence = packet.prefix.path.n, packet.prefix.path_sequence.n
  local expected = direction.paths[path]
  if not expected or sequence >= expected then direction.paths[path] = sequence + 1 end
  if expected and direction.stream.security == false then -- PROBEs count, too, and encrypted ones do not show it
    if sequence > expected then result.gap = sequence - expected end
    result.is_late = sequence < expected
  end
end

-- What is known of a packet at the first pass: whether it, or its content, was sent before.
local function analyse(packet, tvb, pinfo, direction)
  local kind, result, at = packet.kind, { direction = direction }, packet.at
  local now = { frame = pinfo.number, at = pinfo.rel_ts, count = 1, path = packet.prefix.path.n }
  if kind == "DATA" or kind == "PROBE" or kind == "PROTECTED" then
    local key = (kind == "PROTECTED" and "\255" or tvb:raw(at + 3, 1)) .. tvb:raw(at + 4, 12)
    local before = state.transmissions[key]
    if before then
      result.duplicate_of = before.frame
      return result
    end
    state.transmissions[key] = now
    if kind ~= "PROTECTED" then on_path(packet, direction, result) end
  end
  local table_of, key = state.psns, kind == "DATA" and tvb:raw(at + 8, 16)
  if kind == "CLOSE" or kind == "HELLO" then
    local body = packet.body
    table_of = state.repeated
    key = kind .. raw_of(tvb, body.own_context) .. (body.cookie and raw_of(tvb, body.cookie) or "")
  end
  local before = key and table_of[key]
  if before then
    result.sent_before, result.count, result.after = before.frame, before.count + 1, pinfo.rel_ts - before.at
    result.sent_over = before.path
    now.count = before.count + 1
    local psn = kind == "DATA" and tvb(packet.body.psn.at, 8):uint64():tonumber()
    if psn and is_acked(direction, psn) then result.acked_in = direction.acked_in end
  end
  if key then table_of[key] = now end
  return result
end

-- The ranges of set bits in an ACK's bitmap, as { first, last } counted from the cumulative ack.
local function ranges_of(tvb, bitmap)
  local ranges, first = {}, nil
  local raw = bitmap.size > 0 and tvb:raw(bitmap.at, bitmap.size) or ""
  for index = 1, #raw + 1 do
    local octet, bit = raw:byte(index) or 0, (index - 1) * 8
    if octet == 0 and first then
      ranges[#ranges + 1], first = { first = first, last = bit - 1 }, nil
    elseif octet == 255 then
      first = first or bit
    elseif octet > 0 then
      for each = 0, 7 do
        local is_set = math.floor(octet / 2 ^ each) % 2 == 1
        if is_set and not first then
          first = bit + each
        elseif first and not is_set then
          ranges[#ranges + 1], first = { first = first, last = bit + each - 1 }, nil
        end
      end
    end
  end
  return ranges
end

-- What an ACK says of frames that were captured, and of what the receiver got twice.
local function analyse_ack(packet, tvb, pinfo, result)
  local data, body = result.direction.peer, packet.body
  if not data then return end
  local below = tvb(body.cumulative.at, 8):uint64():tonumber()
  if not data.acked_below or below >= data.acked_below then
    data.acked_below, data.acked, data.acked_in = below, {}, pinfo.number
    for index, range in ipairs(ranges_of(tvb, body.bitmap)) do
      data.acked[index] = { first = below + range.first, last = below + range.last }
    end
  end
  result.reports, result.duplicates = {}, 0
  data.reported = data.reported or {}
  for index, report in ipairs(body.reports) do
    local sent = state.transmissions[raw_of(tvb, report.path) .. raw_of(tvb, report.path_sequence) .. data.context]
    result.reports[index] = sent and { frame = sent.frame, time = pinfo.rel_ts - sent.at } or false
    local known = data.reported[report.path.n] or (data.stream.is_whole and 0) or report.duplicates.n
    local more = (report.duplicates.n - known) % 65536
    if more < 32768 then
      result.duplicates = result.duplicates + more
      data.reported[report.path.n] = report.duplicates.n
    end
  end
end

-- What was found of the packet at the first pass; nil for one that is malformed.
local function result_of(packet, tvb, pinfo)
  if packet.reason or packet.is_quoted then return nil end
  local key = pinfo.number .. "/" .. packet.at
  if not pinfo.visited or not state.results[key] then
    local result = analyse(packet, tvb, pinfo, learn(packet, tvb, pinfo))
    if packet.kind == "ACK" then analyse_ack(packet, tvb, pinfo, result) end
    state.results[key] = result
  end
  return state.results[key]
end

-- -- texts ----------------------------------------------------------------------------------------------------------

local function named(names, number) return (names[number] or "unknown status") .. " (" .. number .. ")" end
local function text_of(tvb, value) return tostring(tvb(value.at, value.size):uint64()) end
local function hex_of(tvb, value) return "0x" .. tostring(tvb(value.at, value.size):bytes()):lower() end

-- "17-19, 26" for ranges counted from a PSN.
local function psns_text(tvb, from, ranges)
  local base_psn, parts = tvb(from.at, 8):uint64(), {}
  for index, range in ipairs(ranges) do
    if index > MAX_RANGES then
      parts[index] = "and " .. (#ranges - MAX_RANGES) .. " more ranges"
      break
    end
    local first, last = tostring(base_psn + UInt64(range.first)), tostring(base_psn + UInt64(range.last))
    parts[index] = first == last and first or first .. "-" .. last
  end
  return table.concat(parts, ", ")
end

local function gaps_between(ranges)
  local gaps, from = {}, 0
  for index, range in ipairs(ranges) do
    gaps[index] = { first = from, last = range.first - 1 }
    from = range.last + 1
  end
  return gaps
end

local DATA_TEXTS = {
  SEND = "at offset %s of %s",
  WRITE = "to offset %s of the registration, %s in all",
  READ = "requests from offset %s of the registration %s",
  RESPONSE = "at offset %s of %s",
}

local function data_text(packet, tvb)
  local body, flags = packet.body, packet.prefix.flags.n
  local opcode, message = OPCODES[flags % 4], body.message.n
  local text = opcode .. " message " .. message
  if flags % 16 >= ABORTED then
    text = text .. " ABORTED by its sender: " .. named(STATUSES, body.immediate.n)
  else
    local bytes = body.payload.size - (packet.is_encrypted and TAG_BYTES or 0)
    local where = DATA_TEXTS[opcode]:format(text_of(tvb, body.offset), body.length.n .. " bytes")
    text = text .. ", " .. (opcode == "READ" and "" or math.max(bytes, 0) .. " bytes ") .. where
  end
  return text .. ", PSN " .. text_of(tvb, body.psn) .. ", path " .. packet.prefix.path.n
    .. (packet.is_encrypted and ", payload encrypted" or "")
end

local function ack_text(packet, tvb)
  local body, paths = packet.body, {}
  local text = "all PSNs below " .. text_of(tvb, body.cumulative)
  local ranges = ranges_of(tvb, body.bitmap)
  if #ranges > 0 then
    text = text .. " and " .. psns_text(tvb, body.cumulative, ranges)
      .. "; missing " .. psns_text(tvb, body.cumulative, gaps_between(ranges))
  end
  for index, report in ipairs(body.reports) do paths[index] = report.path.n end
  if #paths > 0 then text = text .. "; reports path " .. table.concat(paths, ", ") end
  if body.flags.n % 2 == 1 then text = text .. "; receiver NOT_READY" end
  return text .. "; credit " .. text_of(tvb, body.credit_bytes) .. " bytes, " .. text_of(tvb, body.credit_messages)
    .. " messages; path " .. packet.prefix.path.n
end

local function own_text(packet, tvb) return "by context " .. hex_of(tvb, packet.body.own_context) end

local TEXTS = {
  DATA = data_text,
  ACK = ack_text,
  HELLO = function(packet, tvb)
    local body = packet.body
    local cookie = body.cookie.size > 0 and "with cookie" or "without cookie"
    return own_text(packet, tvb) .. " " .. cookie .. ", proposes datagrams of " .. body.datagram_bytes.n
      .. " bytes, security " .. (SECURITY[body.security.n] or body.security.n) .. ", path " .. packet.prefix.path.n
  end,
  RETRY = function(packet) return "answers HELLO with a cookie of " .. packet.body.cookie.size .. " bytes" end,
  ACCEPT = function(packet, tvb) return own_text(packet, tvb) .. ", datagrams of " .. packet.body.datagram_bytes.n .. " bytes" end,
  REFUSE = function(packet)
    local reason = packet.body.reason and packet.body.reason.n or 0
    return named(STATUSES, packet.body.status.n) .. (reason ~= 0 and ", " .. (REASONS[reason] or reason) or "")
  end,
  PROBE = function(packet, tvb) return own_text(packet, tvb) .. ", asks for an ACK about path " .. packet.prefix.path.n end,
  CLOSE = own_text,
  CLOSED = own_text,
  RESET = function(packet, tvb) return "context " .. hex_of(tvb, packet.body.own_context) .. " is unknown here" end,
  NACK = function(packet) return "message " .. packet.body.message.n .. " refused: " .. named(STATUSES, packet.body.status.n) end,
  PATH_CHALLENGE = function(packet) return "is this the address of path " .. packet.body.remote_path.n .. "?" end,
  PATH_RESPONSE = function(packet) return "path " .. packet.prefix.path.n end,
  SECURE_ACCEPT = function() return "handshake message (encrypted ACCEPT)" end,
  PROTECTED = function(packet) return "encrypted control packet " .. packet.prefix.path_sequence.n end,
  PULL_REQUEST = function(packet, tvb)
    return text_of(tvb, packet.body.backlog_bytes) .. " bytes wait, " .. text_of(tvb, packet.body.sent_bytes) .. " were sent"
  end,
  PULL = function(packet, tvb)
    local limit = text_of(tvb, packet.body.limit_bytes)
    return limit == "18446744073709551615" and "no limit" or "data may be sent up to " .. limit .. " bytes in all"
  end,
}

local function summary_of(packet, tvb)
  if not packet.kind then return "Malformed packet: " .. packet.reason end
  if packet.reason then return packet.kind .. " [Malformed: " .. packet.reason .. "]" end
  return packet.kind .. ": " .. TEXTS[packet.kind](packet, tvb)
end

-- -- the tree -------------------------------------------------------------------------------------------------------

local function time_of(seconds)
  local whole = math.floor(seconds)
  return NSTime.new(whole, math.floor((seconds - whole) * 1e9 + 0.5))
end

local function generated(tree, proto_field, value) return tree:add(proto_field, value):set_generated() end

local function add_fields(tree, tvb, fields, values, proto_fields, items)
  for _, field in ipairs(fields) do
    local name, value = field[1], values[field[1]]
    if field[4] and field[4].records then
      for index, record in ipairs(value or {}) do
        local range = tvb(record.path.at, record.received_us.at + 4 - record.path.at)
        local subtree = tree:add(range, "Path report " .. index .. ": path " .. record.path.n)
        add_fields(subtree, tvb, field[4].records, record, proto_fields[name].records, {})
        items["report" .. index] = subtree
      end
    elseif value and value.size > 0 and proto_fields[name].proto_field then
      items[name] = tree:add(proto_fields[name].proto_field, tvb(value.at, value.size))
    end
  end
end

local function add_data(tree, tvb, packet, items)
  local body, flags = packet.body, tvb(packet.prefix.flags.at, 1)
  for _, proto_field in ipairs({ F.opcode, F.immediate, F.aborted, F.with_ack, F.key_phase }) do items.flags:add(proto_field, flags) end
  if packet.prefix.flags.n % 16 >= ABORTED and body.immediate then
    items.immediate:add(F.abort_status, tvb(body.immediate.at, 4))
    tree:add_proto_expert_info(E.aborted, "Message aborted by its sender: " .. named(STATUSES, body.immediate.n))
  end
  if packet.is_encrypted and body.payload and body.payload.size >= TAG_BYTES then
    local bytes = body.payload.size - TAG_BYTES
    if bytes > 0 then items.payload:add(F.ciphertext, tvb(body.payload.at, bytes)) end
    items.payload:add(F.tag, tvb(body.payload.at + bytes, TAG_BYTES))
  end
end

local function add_ack(tree, tvb, packet, items, result)
  local body = packet.body
  items.ack_flags:add(F.not_ready, tvb(body.flags.at, 1))
  local ranges = ranges_of(tvb, body.bitmap)
  if #ranges > 0 then
    generated(items.bitmap, F.received, psns_text(tvb, body.cumulative, ranges))
    generated(items.bitmap, F.missing, psns_text(tvb, body.cumulative, gaps_between(ranges)))
  end
  for index, found in ipairs(result.reports or {}) do
    if found then
      generated(items["report" .. index], F.report_frame, found.frame)
      local held_s = body.reports[index].ack_delay_us.n / 1e6
      generated(items["report" .. index], F.report_rtt, time_of(found.time - held_s))
    end
  end
  if body.flags.n % 2 == 1 then
    tree:add_proto_expert_info(E.not_ready, "Receiver not ready: it dropped data for lack of memory")
  end
  if (result.duplicates or 0) > 0 then
    tree:add_proto_expert_info(E.duplicates_reported, "The receiver got " .. result.duplicates
      .. " more packets that it had already: what was sent again, or duplicated in the network")
  end
end

local function add_analysis(tree, tvb, packet, result)
  if result.sent_before then
    local what = packet.kind == "DATA" and "The data of PSN " .. text_of(tvb, packet.body.psn) or "This " .. packet.kind
    tree:add_proto_expert_info(E.retransmission, what .. " was sent before, in frame " .. result.sent_before
      .. " over path " .. result.sent_over .. "; this time over path " .. packet.prefix.path.n)
    generated(tree, F.retransmission_of, result.sent_before)
    generated(tree, F.retransmission_after, time_of(result.after))
    generated(tree, F.transmissions, result.count)
  end
  if result.acked_in then
    tree:add_proto_expert_info(E.spurious, "The receiver had acknowledged it in frame " .. result.acked_in .. " already")
    generated(tree, F.acked_in, result.acked_in)
  end
  if result.duplicate_of then
    tree:add_proto_expert_info(E.duplicate, "The same datagram as in frame " .. result.duplicate_of
      .. ", duplicated by the network or captured twice: it has the same sequence number on the same path")
    generated(tree, F.duplicate_of, result.duplicate_of)
  end
  if result.gap then
    tree:add_proto_expert_info(E.gap, result.gap .. " packets of path " .. packet.prefix.path.n
      .. " before this one are missing: lost before this point, or not captured")
    generated(tree, F.gap, result.gap)
  end
  if result.is_late then tree:add_proto_expert_info(E.out_of_order, "Later packets of path " .. packet.prefix.path.n .. " came first") end
end

local function add_verdict(tree, packet)
  local kind = packet.kind
  if packet.reason and packet.is_short and packet.is_limited then
    tree:add_proto_expert_info(E.cut)
  elseif packet.reason then
    tree:add_proto_expert_info(E.malformed, "Malformed packet: " .. packet.reason)
  elseif kind == "NACK" or kind == "REFUSE" then
    tree:add_proto_expert_info(E.refused, "Refused: " .. named(STATUSES, packet.body.status.n))
  elseif kind == "RESET" then
    tree:add_proto_expert_info(E.reset)
  end
end

local function show(packet, tvb, tree, result)
  local branch = tree:add(srd, tvb(packet.at, packet.size), "SRD " .. summary_of(packet, tvb))
  local items = {}
  add_fields(branch, tvb, PREFIX, packet.prefix, PREFIX_FIELDS, items)
  if packet.kind then
    local body_items = {}
    add_fields(branch, tvb, BODIES[packet.kind], packet.body, shown[packet.kind], body_items)
    items.ack_flags, body_items.flags = body_items.flags, nil
    for name, item in pairs(body_items) do items[name] = item end
  end
  if packet.unused > 0 then branch:add(F.unused, tvb(packet.at + packet.size - packet.unused, packet.unused)) end
  add_verdict(branch, packet)
  if packet.is_quoted then branch:append_text(" (quoted in an ICMP error)") end
  if not result then return end
  local stream = result.direction.stream
  generated(branch, F.stream, stream.number)
  if result.direction.peer then
    local item = generated(branch, F.peer_context, UInt64.fromhex(Struct.tohex(result.direction.peer.context)))
    if stream.is_inferred then item:append_text(" (inferred: the handshake that names it is encrypted)") end
  end
  if packet.kind == "DATA" then add_data(branch, tvb, packet, items) end
  if packet.kind == "ACK" then add_ack(branch, tvb, packet, items, result) end
  if packet.kind == "PROTECTED" then
    items.flags:add(F.key_phase, tvb(packet.prefix.flags.at, 1))
    branch:add(F.tag, tvb(packet.at + packet.size - TAG_BYTES, TAG_BYTES))
  end
  add_analysis(branch, tvb, packet, result)
end

-- -- dissectors -----------------------------------------------------------------------------------------------------

local function known_stream(tvb, at)
  if tvb:len() - at < PREFIX_BYTES then return {} end
  local direction = state.directions[tvb:raw(at + 8, 8)]
  return direction and direction.stream or {}
end

local function marks_of(result)
  if not result then return "" end
  if result.duplicate_of then return "[Duplicate of #" .. result.duplicate_of .. "] " end
  if result.acked_in then return "[Spurious retransmission of #" .. result.sent_before .. "] " end
  return result.sent_before and "[Retransmission of #" .. result.sent_before .. "] " or ""
end

function srd.dissector(tvb, pinfo, tree)
  local at, stop, count, info = 0, tvb:len(), 0, nil
  local is_limited, is_quoted = tvb:reported_len() > stop, ICMP_TYPES[1]() or ICMP_TYPES[2]()
  pinfo.cols.protocol = "SRD"
  while at < stop do
    local stream = known_stream(tvb, at)
    local ends = end_of(tvb, at, stop)
    local has_key_phase = ends - at >= PREFIX_BYTES and tvb(at + 2, 1):uint() >= KEY_PHASE
    local packet = packet_at(tvb, at, ends, has_key_phase or stream.security)
    packet.is_limited, packet.is_quoted = is_limited, is_quoted
    local result = result_of(packet, tvb, pinfo)
    show(packet, tvb, tree, result)
    info = info or marks_of(result) .. summary_of(packet, tvb)
    at, count = ends, count + 1
  end
  if count > 1 then info = "[" .. count .. " packets in one segment train] " .. info end
  pinfo.cols.info = info or "Empty datagram"
  return stop
end

-- Whether bytes look like a packet: nothing contradicts, and what is not used is 0.
local function looks_like_srd(tvb)
  if tvb:len() < PREFIX_BYTES or not TYPES[tvb(1, 1):uint()] then return false end
  if tvb(0, 1):uint() ~= VERSION then return false end
  if state.directions[tvb:raw(8, 8)] then return true end
  local packet = packet_at(tvb, 0, end_of(tvb, 0, tvb:len()), nil)
  local is_cut = packet.is_short and tvb:reported_len() > tvb:len()
  if packet.reason and not is_cut then return false end
  local has_flags = packet.kind == "DATA" or packet.kind == "PROTECTED"
  if not has_flags and packet.prefix.flags.n ~= 0 then return false end
  local is_nobodys = packet.context == ("\0"):rep(8)
  return is_nobodys == (packet.kind == "HELLO") or packet.kind == "RESET"
end

local function heuristic(tvb, pinfo, tree)
  if not looks_like_srd(tvb) then return false end
  pinfo.conversation = srd -- also what is malformed between these two ports
  srd.dissector(tvb, pinfo, tree)
  return true
end

srd:register_heuristic("udp", heuristic)
DissectorTable.get("udp.port"):add(PORTS, srd)
