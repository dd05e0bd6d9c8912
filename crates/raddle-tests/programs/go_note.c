/* A program with the note of Go's linker, as a Go program with C parts has it: behind the notes of
 * the C compiler, in a segment of its own. */
#include "check.h"

__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
        ".balign 4\n"
        ".long 4, 4, 4\n"
        ".ascii \"Go\\0\\0\"\n"
        ".long 0\n"
        ".popsection\n");

static void *answer(void *unused)
{
    (void)unused;
    return number(42);
}

CASE(a_thread_is_joined)
{
    IS(join(start(answer, NULL)), 42);
}
