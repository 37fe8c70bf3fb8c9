/* Kernel TCP as a plain program uses it: blocking calls of 128 KiB, cubic, nothing else.
 *
 *     plain_tcp receive HOST WARM_UP_S
 *     plain_tcp send HOST WARM_UP_S PORT SECONDS
 */

#include <netinet/tcp.h>
#include "plain_end.h"

#define CALL_BYTES ((size_t)128 << 10)

static void use_cubic(int sock) {
    if (setsockopt(sock, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5)) fail("TCP_CONGESTION cubic");
}

static void receive(const char *host, double warm_up_s) {
    char *target = memory(TARGET_BYTES);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    listen_at(listener, host, 1);
    int sock = accept(listener, NULL, NULL);
    if (sock < 0) fail("accept");
    use_cubic(sock);
    struct account account = {0};
    size_t at = 0;
    ssize_t got;
    while ((got = recv(sock, target + at, CALL_BYTES, 0)) > 0) {
        count(&account, (uint64_t)got, warm_up_s);
        at += (size_t)got;
        if (at + CALL_BYTES > TARGET_BYTES) at = 0;
    }
    if (got < 0) fail("recv");
    report("received", &account);
}

static void send_for(const char *host, double warm_up_s, int port, double seconds) {
    char *source = memory(SOURCE_BYTES);
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    use_cubic(sock);
    struct sockaddr_in address = ipv4(host, port);
    if (connect(sock, (void *)&address, sizeof address)) fail("connect");
    struct account account = {0};
    size_t at = 0;
    double end_at = now_s() + warm_up_s + seconds;
    while (now_s() < end_at) {
        ssize_t sent = send(sock, source + at, CALL_BYTES, 0);
        if (sent < 0) fail("send");
        count(&account, (uint64_t)sent, warm_up_s);
        at += (size_t)sent;
        if (at + CALL_BYTES > SOURCE_BYTES) at = 0;
    }
    report("sent", &account);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "receive") == 0) {
        receive(argv[2], atof(argv[3]));
    } else if (argc == 6 && strcmp(argv[1], "send") == 0) {
        send_for(argv[2], atof(argv[3]), atoi(argv[4]), atof(argv[5]));
    } else {
        fprintf(stderr, "usage: plain_tcp receive HOST WARM_UP_S | send HOST WARM_UP_S PORT SECONDS\n");
        return 2;
    }
    return 0;
}
