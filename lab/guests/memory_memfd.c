/* A memfd keeps its bytes, size and seals, and can be mapped after a move. */
#include "travel.h"

enum { SIZE = 50000 };

int main(void)
{
    static unsigned char bytes[SIZE];
    int fd = (int)must(memfd_create("guest", MFD_ALLOW_SEALING), "memfd_create");
    fill(bytes, SIZE, 13);
    write_fully(fd, bytes, SIZE);
    must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "F_ADD_SEALS");
    travel();
    memset(bytes, 0, SIZE);
    CHECK(pread(fd, bytes, SIZE, 0) == SIZE && is_filled(bytes, SIZE, 13), "its bytes");
    CHECK(lseek(fd, 0, SEEK_CUR) == SIZE, "its offset");
    CHECK(fcntl(fd, F_GET_SEALS) == F_SEAL_SHRINK, "its seals");
    CHECK(ftruncate(fd, 1) == -1 && errno == EPERM, "which hold");
    unsigned char *map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && is_filled(map, SIZE, 13), "it can be mapped");
    travel();
    CHECK(is_filled(map, SIZE, 13), "and the map travels");
    return verdict();
}
