/* Loads a library and calls its `finish`. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = count < 2 ? NULL : dlopen(arguments[1], RTLD_NOW);
    void (*finish)(void);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&finish = dlsym(library, "finish");
    finish();
    return 0;
}
