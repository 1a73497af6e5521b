/* A shared library is loaded by dlopen after a move, used, and unloaded after another. */
#include "travel.h"
#include <dlfcn.h>

int main(void)
{
    double (*cosine)(double);
    travel();
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL, "the library is loaded");
    void *symbol = library ? dlsym(library, "cos") : NULL;
    CHECK(symbol != NULL, "it has the function");
    memcpy(&cosine, &symbol, sizeof cosine);
    CHECK(symbol && cosine(0.0) == 1.0, "which computes");
    travel();
    CHECK(symbol && cosine(0.0) == 1.0, "after a move too");
    CHECK(library && dlclose(library) == 0, "the library is unloaded");
    CHECK(dlopen("libnothing.so.9", RTLD_NOW) == NULL, "what is not there is not loaded");
    return verdict();
}
