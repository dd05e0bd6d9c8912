/* Sets of one signal, and the thread's mask changed by them. */
#ifndef ONE_SIGNAL_H
#define ONE_SIGNAL_H

#include "check.h"

__attribute__((unused)) static sigset_t set_of(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

__attribute__((unused)) static void block(int signal)
{
    sigset_t set = set_of(signal);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
}

__attribute__((unused)) static void unblock(int signal)
{
    sigset_t set = set_of(signal);
    OK(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
}

#endif
