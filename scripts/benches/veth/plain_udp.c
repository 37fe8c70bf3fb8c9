/* What a process can move through this kernel's UDP: a window, acks, GSO and GRO, nothing else of a transport.
 *
 *     plain_udp receive HOST WARM_UP_S MTU
 *     plain_udp send HOST WARM_UP_S PORT SECONDS MTU
 *
 * Headers lie apart from payloads at both ends, as SRD has them: the kernel gathers and scatters (header, payload)
 * pairs. The sockets are connected, which SRD's cannot be (several paths, many peers). Nothing is checked or sent
 * again: where a datagram is lost, the acks stop, and the program fails. Only payload counts.
 */

#define _GNU_SOURCE
#include <netinet/udp.h>
#include <poll.h>
#include "plain_end.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif

#define IP_UDP_BYTES 28
#define HEADER_BYTES 56
#define HEADER_ROOM 64
#define MOST_BYTES 65507 /* of a GSO message: an IP packet's length has 16 bits */
#define MOST_SEGMENTS 64
#define TRAIN_ROOM 65536
#define WINDOW_BYTES 1000000
#define BUFFER_BYTES (64 << 20)
#define MESSAGES 4 /* a call of sendmmsg */
#define SLOTS 16   /* a call of recvmmsg */
#define SILENT_MS 5000

struct shape {
    int segment_bytes, payload_bytes, segments;
};

static struct shape shape_of(int mtu) {
    struct shape shape = {.segment_bytes = mtu - IP_UDP_BYTES};
    shape.payload_bytes = shape.segment_bytes - HEADER_BYTES;
    shape.segments = MOST_BYTES / shape.segment_bytes;
    if (shape.segments > MOST_SEGMENTS) shape.segments = MOST_SEGMENTS;
    return shape;
}

static int udp_socket(void) {
    int sock = socket(AF_INET, SOCK_DGRAM, 0), bytes = BUFFER_BYTES;
    if (sock < 0) fail("socket");
    if (setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes)) fail("SO_RCVBUFFORCE");
    if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes)) fail("SO_SNDBUFFORCE");
    return sock;
}

static void await(int sock) {
    struct pollfd readable = {.fd = sock, .events = POLLIN};
    if (poll(&readable, 1, SILENT_MS) == 0) {
        errno = ETIMEDOUT;
        fail("the other end is silent");
    }
}

/* Payload in a message of `length` bytes, of which each segment has a header. */
static uint64_t payload_of(size_t length, struct shape shape) {
    size_t segments = (length + (size_t)shape.segment_bytes - 1) / (size_t)shape.segment_bytes;
    return length - segments * HEADER_BYTES;
}

static void point_slots(struct mmsghdr *slots, struct iovec (*pieces)[2 * MOST_SEGMENTS], struct shape shape,
                        char *target) {
    static char headers[SLOTS][MOST_SEGMENTS][HEADER_ROOM];
    for (int slot = 0; slot < SLOTS; slot++) {
        char *at = target + (size_t)slot * TRAIN_ROOM;
        for (int segment = 0; segment < shape.segments; segment++, at += shape.payload_bytes) {
            pieces[slot][2 * segment] = (struct iovec){headers[slot][segment], HEADER_BYTES};
            pieces[slot][2 * segment + 1] = (struct iovec){at, (size_t)shape.payload_bytes};
        }
        slots[slot].msg_hdr = (struct msghdr){.msg_iov = pieces[slot], .msg_iovlen = 2 * (size_t)shape.segments};
    }
}

static void receive(const char *host, double warm_up_s, struct shape shape) {
    static struct iovec pieces[SLOTS][2 * MOST_SEGMENTS];
    static struct mmsghdr slots[SLOTS];
    char *target = memory(TARGET_BYTES), first;
    int sock = udp_socket(), on = 1;
    if (setsockopt(sock, IPPROTO_UDP, UDP_GRO, &on, sizeof on)) fail("UDP_GRO");
    listen_at(sock, host, 0);
    await(sock);
    struct sockaddr_in sender;
    socklen_t length = sizeof sender;
    recvfrom(sock, &first, 1, MSG_PEEK, (void *)&sender, &length);
    if (connect(sock, (void *)&sender, length)) fail("connect");
    struct account account = {0};
    uint64_t received = 0;
    size_t at = 0;
    for (int is_over = 0; !is_over;) {
        point_slots(slots, pieces, shape, target + at);
        int messages = recvmmsg(sock, slots, SLOTS, MSG_DONTWAIT, NULL);
        if (messages < 0) {
            if (errno != EAGAIN) fail("recvmmsg");
            await(sock);
            continue;
        }
        uint64_t payload = 0;
        for (int slot = 0; slot < messages && !is_over; slot++) {
            if (slots[slot].msg_len < HEADER_BYTES) is_over = 1;
            else payload += payload_of(slots[slot].msg_len, shape);
        }
        received += payload;
        if (payload) count(&account, payload, warm_up_s);
        if (send(sock, &received, sizeof received, 0) < 0 && !is_over) fail("send");
        at += (size_t)messages * TRAIN_ROOM;
        if (at + (size_t)SLOTS * TRAIN_ROOM > TARGET_BYTES) at = 0;
    }
    report("received", &account);
}

static void segment_as(struct msghdr *message, char *control, int segment_bytes) {
    message->msg_control = control;
    message->msg_controllen = CMSG_SPACE(sizeof(uint16_t));
    struct cmsghdr *segmentation = CMSG_FIRSTHDR(message);
    segmentation->cmsg_level = IPPROTO_UDP;
    segmentation->cmsg_type = UDP_SEGMENT;
    segmentation->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    *(uint16_t *)CMSG_DATA(segmentation) = (uint16_t)segment_bytes;
}

/* Point the pairs of `messages` messages at payloads from `at` on, and number their packets; return the next offset. */
static size_t point_messages(struct mmsghdr *messages, int count, struct shape shape, char *source, size_t at,
                             uint64_t *sequence) {
    static struct iovec pieces[MESSAGES][2 * MOST_SEGMENTS];
    static char headers[MESSAGES][MOST_SEGMENTS][HEADER_ROOM];
    for (int message = 0; message < count; message++) {
        for (int segment = 0; segment < shape.segments; segment++) {
            memcpy(headers[message][segment], sequence, sizeof *sequence);
            ++*sequence;
            pieces[message][2 * segment] = (struct iovec){headers[message][segment], HEADER_BYTES};
            pieces[message][2 * segment + 1] = (struct iovec){source + at, (size_t)shape.payload_bytes};
            at += (size_t)shape.payload_bytes;
            if (at + (size_t)shape.payload_bytes > SOURCE_BYTES) at = 0;
        }
        messages[message].msg_hdr.msg_iov = pieces[message];
        messages[message].msg_hdr.msg_iovlen = 2 * (size_t)shape.segments;
    }
    return at;
}

static void read_acks(int sock, uint64_t *acknowledged) {
    uint64_t ack;
    while (recv(sock, &ack, sizeof ack, MSG_DONTWAIT) == sizeof ack) *acknowledged = ack;
}

static void send_for(const char *host, double warm_up_s, int port, double seconds, struct shape shape) {
    static struct mmsghdr messages[MESSAGES];
    static char control[MESSAGES][CMSG_SPACE(sizeof(uint16_t))] __attribute__((aligned(8)));
    char *source = memory(SOURCE_BYTES);
    int sock = udp_socket();
    struct sockaddr_in address = ipv4(host, port);
    if (connect(sock, (void *)&address, sizeof address)) fail("connect");
    for (int message = 0; message < MESSAGES; message++)
        segment_as(&messages[message].msg_hdr, control[message], shape.segment_bytes);
    struct account account = {0};
    uint64_t sent = 0, acknowledged = 0, sequence = 0, message_bytes = (uint64_t)shape.segments * (uint64_t)shape.payload_bytes;
    size_t at = 0;
    double end_at = now_s() + warm_up_s + seconds;
    while (now_s() < end_at) {
        read_acks(sock, &acknowledged);
        uint64_t room = (WINDOW_BYTES - (sent - acknowledged)) / message_bytes;
        if (room == 0) {
            await(sock);
            continue;
        }
        int most = room < MESSAGES ? (int)room : MESSAGES;
        at = point_messages(messages, most, shape, source, at, &sequence);
        int accepted = sendmmsg(sock, messages, (unsigned)most, 0);
        if (accepted < 0) fail("sendmmsg");
        sent += (uint64_t)accepted * message_bytes;
        count(&account, (uint64_t)accepted * message_bytes, warm_up_s);
    }
    report("sent", &account);
    while (acknowledged < sent) {
        await(sock);
        read_acks(sock, &acknowledged);
    }
    if (send(sock, "", 1, 0) != 1) fail("send");
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "receive") == 0) {
        receive(argv[2], atof(argv[3]), shape_of(atoi(argv[4])));
    } else if (argc == 7 && strcmp(argv[1], "send") == 0) {
        send_for(argv[2], atof(argv[3]), atoi(argv[4]), atof(argv[5]), shape_of(atoi(argv[6])));
    } else {
        fprintf(stderr, "usage: plain_udp receive HOST WARM_UP_S MTU | send HOST WARM_UP_S PORT SECONDS MTU\n");
        return 2;
    }
    return 0;
}
