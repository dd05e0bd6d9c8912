// Another library for plugins.c, as long as the first: the loader maps it where that was.

#define NAMED(name) second_##name
#include "plugins_library.c"
