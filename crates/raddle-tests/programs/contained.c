/* Runs a command under a container's filter of system calls. */
#define CHECK_OWN_MAIN
#include "check.h"
#include "container.h"

int main(int count, char **words)
{
    case_name = "contained";
    CHECK(count > 1);
    install_filter();
    execv(words[1], words + 1);
    perror(words[1]);
    return 1;
}
