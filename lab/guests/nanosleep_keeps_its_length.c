/* nanosleep lasts as long as was asked, however often the sleeper is moved meanwhile. */
#include "travel.h"

int main(void)
{
    for (int round = 1; round <= 3; round++) {
        double asked_s = travel_ms() * round / 1500.0;
        struct timespec asked = timespec_of(asked_s);
        double start_s = now_s();
        int result = nanosleep(&asked, NULL);
        CHECK(result == 0, "nanosleep is not interrupted");
        CHECK(lasted(now_s() - start_s, asked_s), "nanosleep lasts as asked");
    }
    return verdict();
}
