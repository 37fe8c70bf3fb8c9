/* What the ends of the plain pairs (plain_tcp.c, plain_udp.c) have in common: clocks, memory, and the events of
 * scripts/harness/events.py. Kept from the probes that the limits of the reference machine were measured with
 * (bulk3.c, 2026-11-22), without their options. */

#ifndef PLAIN_END_H
#define PLAIN_END_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

#define SOURCE_BYTES ((size_t)4 << 20) /* sent from, over and over, as the SRD worker does: it stays in the CPU cache */
#define TARGET_BYTES ((size_t)128 << 20) /* received into: ever other memory, as with SRD */

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/* Memory whose pages have all been written to, so that no measured call has to map one. */
static char *memory(size_t size_bytes) {
    char *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) fail("mmap");
    return memset(at, 1, size_bytes);
}

static struct sockaddr_in ipv4(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
    return address;
}

/* Bind to any port of a host, and print it. For TCP, which cannot be connected to before, `listen` comes first. */
static void listen_at(int sock, const char *host, int is_stream) {
    struct sockaddr_in address = ipv4(host, 0);
    socklen_t length = sizeof address;
    if (bind(sock, (void *)&address, sizeof address) || (is_stream && listen(sock, 1))) fail("bind");
    getsockname(sock, (void *)&address, &length);
    printf("{\"event\": \"listening\", \"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
}

/* What one end has moved since its warm-up. */
struct account {
    uint64_t bytes;
    double warm_at, started_at, last_at, cpu_before_s;
};

/* Count bytes, from `warm_up_s` after the first ones on. */
static void count(struct account *account, uint64_t bytes, double warm_up_s) {
    double now = account->last_at = now_s();
    if (account->warm_at == 0) account->warm_at = now + warm_up_s;
    if (account->started_at != 0) {
        account->bytes += bytes;
    } else if (now >= account->warm_at) {
        account->started_at = now;
        account->cpu_before_s = cpu_s();
    }
}

static void report(const char *event, const struct account *account) {
    printf("{\"event\": \"%s\", \"bytes\": %llu, \"seconds\": %.6f, \"cpu_s\": %.6f}\n", event,
           (unsigned long long)account->bytes, account->last_at - account->started_at, cpu_s() - account->cpu_before_s);
}

#endif
