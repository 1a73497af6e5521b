/* Unix sockets: datagrams keep their bounds, a named socket its path, credentials their owner. */
#include "travel.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "door"};

static void connect_and_send(void)
{
    int fd = (int)must(socket(AF_UNIX, SOCK_SEQPACKET, 0), "socket");
    must(connect(fd, (struct sockaddr *)&name, sizeof name), "connect");
    must(send(fd, "one", 3, 0), "send");
    must(send(fd, "three", 5, 0), "send");
}

int main(void)
{
    int pair[2];
    char text[64];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), "socketpair");
    CHECK(send(pair[0], "abc", 3, 0) == 3 && send(pair[0], "defgh", 5, 0) == 5, "two datagrams");
    travel();
    CHECK(recv(pair[1], text, sizeof text, 0) == 3, "the first by itself");
    CHECK(recv(pair[1], text, 2, MSG_TRUNC) == 5 && memcmp(text, "de", 2) == 0, "the next, cut");
    CHECK(recv(pair[1], text, 2, MSG_DONTWAIT) == -1 && errno == EAGAIN, "and no more");
    int door = (int)must(socket(AF_UNIX, SOCK_SEQPACKET, 0), "socket");
    must(bind(door, (struct sockaddr *)&name, sizeof name), "bind");
    must(listen(door, 1), "listen");
    pid_t child = child_after_travel(connect_and_send);
    int fd = accept(door, NULL, NULL);
    struct ucred owner = {0};
    socklen_t size = sizeof owner;
    must(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size), "getsockopt");
    CHECK(owner.pid == child && owner.uid == getuid(), "the other end is the child");
    CHECK(recv(fd, text, sizeof text, MSG_PEEK) == 3, "a packet is peeked");
    CHECK(recv(fd, text, sizeof text, 0) == 3 && memcmp(text, "one", 3) == 0, "and taken");
    CHECK(recv(fd, text, sizeof text, 0) == 5 && memcmp(text, "three", 5) == 0, "and the next");
    CHECK(recv(fd, text, sizeof text, 0) == 0, "and the end");
    join_child(child);
    unlink("door");
    return verdict();
}
