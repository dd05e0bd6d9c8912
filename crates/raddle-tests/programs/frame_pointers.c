/* The same program with frame pointers. */
#pragma GCC optimize("no-omit-frame-pointer")
#include "deep_stacks.c"
