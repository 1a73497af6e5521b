/* Two megabytes go through a TCP connection while its ends are moved, and arrive as they were. */
#include "travel.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { SIZE = 2 << 20, CHUNK = 64 << 10 };
static unsigned char bytes[SIZE], back[SIZE];
static struct sockaddr_in address = {.sin_family = AF_INET};

static void send_all(void)
{
    int fd = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(connect(fd, (struct sockaddr *)&address, sizeof address), "connect");
    for (size_t at = 0; at < SIZE; at += CHUNK) {
        write_fully(fd, bytes + at, CHUNK);
        sleep_until(now_s() + travel_ms() / 32e3);
    }
    shutdown(fd, SHUT_WR);
    char byte;
    _exit(read(fd, &byte, 1) == 1 && byte == '!' ? 0 : 4);
}

int main(void)
{
    int door = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket"), one = 1, seen = 0;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    must(bind(door, (struct sockaddr *)&address, size), "bind");
    must(listen(door, 4), "listen");
    must(getsockname(door, (struct sockaddr *)&address, &size), "getsockname");
    fill(bytes, SIZE, 5);
    pid_t child = child_after_travel(send_all);
    int fd = (int)must(accept(door, NULL, NULL), "accept");
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "setsockopt");
    size = sizeof seen;
    must(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &seen, &size), "getsockopt");
    CHECK(seen != 0, "a socket option is kept");
    CHECK(read_fully(fd, back, SIZE) == SIZE, "every byte arrives");
    CHECK(memcmp(bytes, back, SIZE) == 0, "as it was sent");
    CHECK(read(fd, back, 1) == 0, "and the end is seen");
    must(write(fd, "!", 1), "write");
    join_child(child);
    return verdict();
}
