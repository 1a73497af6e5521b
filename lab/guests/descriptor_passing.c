/* sendmsg passes an open file to a child (SCM_RIGHTS), offset and all, with several buffers. */
#include "travel.h"
#include <sys/socket.h>
#include <sys/uio.h>

static int pair[2];

union ancillary {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static void receive_and_write(void)
{
    char text[4] = "", more[4] = "";
    union ancillary control;
    struct iovec parts[2] = {{text, 2}, {more, 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    must(recvmsg(pair[1], &message, 0), "recvmsg");
    int fd = -1;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    if (part && part->cmsg_type == SCM_RIGHTS) {
        memcpy(&fd, CMSG_DATA(part), sizeof fd);
    }
    must(write(fd, text, 2), "write");
    must(write(fd, more, 2), "write");
}

int main(void)
{
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
    int file = (int)must(open("passed", O_RDWR | O_CREAT | O_TRUNC, 0644), "open");
    must(write(file, "begin ", 6), "write");
    pid_t child = (pid_t)must(fork(), "fork");
    if (child == 0) {
        close(file);
        receive_and_write();
        _exit(0);
    }
    travel();
    union ancillary control = {{0}};
    struct iovec parts[2] = {{"en", 2}, {"d.", 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(part), &file, sizeof file);
    CHECK(sendmsg(pair[0], &message, 0) == 4, "four bytes and a descriptor are sent");
    join_child(child);
    travel();
    CHECK(lseek(file, 0, SEEK_CUR) == 10, "the offset is shared");
    char text[11] = "";
    CHECK(pread(file, text, 10, 0) == 10 && !strcmp(text, "begin end."), "the child wrote on");
    return verdict();
}
