/*
 * Two green threads hand a value back and forth, each by a completion that the other waits for.
 *
 *   cc ping_pong.c $(pkg-config --cflags --libs raddle) -o ping_pong && ./ping_pong
 */
#include <raddle.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 1000 };

static raddle_completion pings[ROUNDS], pongs[ROUNDS];

/* Functions return negative errno values: this is how an error is reported. */
static void check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-result));
        exit(1);
    }
}

static void *answer_pings(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        void *ball;
        check(raddle_completion_wait(pings[i], &ball), "waiting for a ping");
        check(raddle_completion_set(pongs[i], (void *)((intptr_t)ball + 1)), "pong");
    }
    return argument;
}

static void *play(void *argument) {
    void *ball = NULL;
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        check(raddle_completion_set(pings[i], ball), "ping");
        check(raddle_completion_wait(pongs[i], &ball), "waiting for a pong");
    }
    return ball; /* was raised once in each round */
}

int main(void) {
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    raddle_thread player, partner;
    void *rounds;

    if (raddle_status() != RADDLE_GREEN)
        fprintf(stderr, "threads are kernel threads here; raddle doctor says why\n");
    for (int i = 0; i < ROUNDS; i++) {
        check(raddle_completion_create(&pings[i]), "a completion");
        check(raddle_completion_create(&pongs[i]), "a completion");
    }
    options.name = "partner";
    check(raddle_spawn(&partner, &options, answer_pings, NULL), "a thread");
    check(raddle_spawn(&player, NULL, play, NULL), "a thread");
    check(raddle_join(player, &rounds), "joining");
    check(raddle_join(partner, NULL), "joining");
    for (int i = 0; i < ROUNDS; i++) {
        check(raddle_completion_free(pings[i]), "freeing");
        check(raddle_completion_free(pongs[i]), "freeing");
    }
    printf("%ld round trips\n", (long)(intptr_t)rounds);
    return 0;
}
