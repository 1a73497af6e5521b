/* UDP datagrams queued before a move are read after it, with the address they came from. */
/* not stopped: a receive with a timeout ends with EINTR when a stopped process continues */
#include "travel.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int bound(struct sockaddr_in *address)
{
    int fd = (int)must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof *address;
    must(bind(fd, (struct sockaddr *)address, size), "bind");
    must(getsockname(fd, (struct sockaddr *)address, &size), "getsockname");
    return fd;
}

int main(void)
{
    struct sockaddr_in here, there, from;
    int a = bound(&here), b = bound(&there);
    char text[2000];
    for (int i = 1; i <= 3; i++) {
        memset(text, 'a' + i, sizeof text);
        must(sendto(a, text, (size_t)i * 500, 0, (void *)&there, sizeof there), "sendto");
    }
    travel();
    for (int i = 1; i <= 3; i++) {
        socklen_t size = sizeof from;
        ssize_t got = recvfrom(b, text, sizeof text, 0, (void *)&from, &size);
        CHECK(got == i * 500 && text[got - 1] == 'a' + i, "a queued datagram");
        CHECK(from.sin_port == here.sin_port, "from its sender");
    }
    travel();
    struct timeval wait = {0, 50000};
    must(setsockopt(b, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait), "setsockopt");
    CHECK(recv(b, text, sizeof text, 0) == -1 && errno == EAGAIN, "a receive timeout");
    return verdict();
}
