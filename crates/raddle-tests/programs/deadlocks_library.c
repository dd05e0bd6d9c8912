/* The native methods of Deadlocks.java: they need nothing of JNI. */
#include <pthread.h>

static pthread_mutex_t native_lock = PTHREAD_MUTEX_INITIALIZER;

void Java_Deadlocks_take(void *environment, void *class)
{
    (void)environment;
    (void)class;
    pthread_mutex_lock(&native_lock);
}

void Java_Deadlocks_give(void *environment, void *class)
{
    (void)environment;
    (void)class;
    pthread_mutex_unlock(&native_lock);
}
