/* accept blocks until a connection comes, and both ends of it work after a move. */
#include "travel.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in address = {.sin_family = AF_INET};

static void connect_and_talk(void)
{
    int fd = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    must(connect(fd, (struct sockaddr *)&address, sizeof address), "connect");
    char text[5];
    must(write(fd, "ping", 4), "write");
    _exit(read_fully(fd, text, 4) == 4 && memcmp(text, "pong", 4) == 0 ? 0 : 3);
}

int main(void)
{
    int door = (int)must(socket(AF_INET, SOCK_STREAM, 0), "socket");
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    must(bind(door, (struct sockaddr *)&address, size), "bind");
    must(listen(door, 4), "listen");
    must(getsockname(door, (struct sockaddr *)&address, &size), "getsockname");
    for (int round = 0; round < 2; round++) {
        pid_t child = child_after_travel(connect_and_talk);
        struct sockaddr_in from = {0};
        size = sizeof from;
        int fd = accept(door, (struct sockaddr *)&from, &size);
        CHECK(fd >= 0, "accept gives a connection");
        CHECK(from.sin_addr.s_addr == htonl(INADDR_LOOPBACK), "from this node");
        char text[5];
        CHECK(read_fully(fd, text, 4) == 4 && memcmp(text, "ping", 4) == 0, "it speaks");
        CHECK(write(fd, "pong", 4) == 4, "it is answered");
        join_child(child);
        CHECK(read(fd, text, 4) == 0, "it hangs up");
        close(fd);
    }
    return verdict();
}
