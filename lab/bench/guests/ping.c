/*
 * A plain exchange over TCP, the floor of every forwarded call: one message there, one back, of the
 * sizes given, with blocking calls and nothing in between. `ping listen REQUEST REPLY` prints its
 * port; `ping ADDRESS PORT REQUEST REPLY` times exchanges with it.
 */
#include "drive.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int connection;
static size_t request_bytes, reply_bytes;
static char buffer[1 << 20];

static size_t size_of(const char *text)
{
    long size = atol(text);
    must(size > 0 ? 0 : -1, text);
    return (size_t)size;
}

/* 0 when the other side is gone. */
static int receive(size_t size)
{
    for (size_t have = 0; have < size;) {
        size_t wanted = size - have < sizeof buffer ? size - have : sizeof buffer;
        ssize_t got = read(connection, buffer, wanted);
        if (must(got, "read") == 0) {
            return 0;
        }
        have += (size_t)got;
    }
    return 1;
}

static void send_all(size_t size)
{
    while (size > 0) {
        size_t part = size < sizeof buffer ? size : sizeof buffer;
        must(write(connection, buffer, part) == (ssize_t)part ? 0 : -1, "write");
        size -= part;
    }
}

static void exchange(void)
{
    send_all(request_bytes);
    must(receive(reply_bytes) ? 0 : -1, "the other side ended");
}

static void without_delay(void)
{
    int on = 1;
    must(setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
}

static void answer(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t length = sizeof here;
    int listener = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(bind(listener, (struct sockaddr *)&here, sizeof here), "bind");
    must(listen(listener, 1), "listen");
    must(getsockname(listener, (struct sockaddr *)&here, &length), "getsockname");
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    connection = (int)must(accept(listener, NULL, NULL), "accept");
    without_delay();
    while (receive(request_bytes)) {
        send_all(reply_bytes);
    }
}

static void ask(const char *address, const char *port)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    must(inet_pton(AF_INET, address, &there.sin_addr) == 1 ? 0 : -1, address);
    connection = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(connect(connection, (struct sockaddr *)&there, sizeof there), "connect");
    without_delay();
    drive_timed_steps(exchange);
}

int main(int count, char **words)
{
    if (count < 4) {
        fprintf(stderr, "usage: ping listen REQUEST REPLY | ping ADDRESS PORT REQUEST REPLY\n");
        return 2;
    }
    request_bytes = size_of(words[count - 2]);
    reply_bytes = size_of(words[count - 1]);
    if (count == 4) {
        answer();
    } else {
        ask(words[1], words[2]);
    }
    return 0;
}
