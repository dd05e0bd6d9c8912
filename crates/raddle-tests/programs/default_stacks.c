/* `default_stacks COUNT`: so many threads with default attributes wait at the same time. Prints how
 * many there were, and whether the process had fewer mappings than one for ten threads. */
#define CHECK_OWN_MAIN
#include "check.h"

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_mutex(void *unused)
{
    OK(pthread_mutex_lock(&held));
    OK(pthread_mutex_unlock(&held));
    return unused;
}

static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    int lines = 0, letter;
    while ((letter = getc(maps)) != EOF) {
        lines += letter == '\n';
    }
    OK(fclose(maps));
    return lines;
}

int main(int argc, char **argv)
{
    case_name = "default_stacks";
    int count = argc > 1 ? atoi(argv[1]) : 1, made = 0;
    pthread_t *threads = calloc(count, sizeof *threads);
    OK(pthread_mutex_lock(&held));
    while (made < count && pthread_create(&threads[made], NULL, wait_for_mutex, NULL) == 0) {
        made++;
    }
    printf("%d threads, %s mappings\n", made, count_mappings() < made / 10 ? "few" : "many");
    OK(pthread_mutex_unlock(&held));
    join_all(threads, made);
    return 0;
}
