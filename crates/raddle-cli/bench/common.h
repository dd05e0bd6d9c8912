// Parts that the benchmark programs share: time, the number of rounds, and printing of results.
#ifndef RADDLE_BENCH_COMMON_H
#define RADDLE_BENCH_COMMON_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The rounds named on the command line, else the program's own number.
static inline long rounds_of(int argc, char **argv, long rounds) {
  return argc > 1 ? atol(argv[1]) : rounds;
}

static inline void metric(const char *name, double value, const char *unit) {
  printf("METRIC %s %.3f %s\n", name, value, unit);
}

static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The value below which `part` of the samples lie; sorts them.
static inline double quantile(double *samples, long count, double part) {
  qsort(samples, (size_t)count, sizeof *samples, ascending);
  return samples[(long)((double)(count - 1) * part)];
}

static inline void must(int error, const char *what) {
  if (error != 0) {
    fprintf(stderr, "%s failed: %d\n", what, error);
    exit(1);
  }
}

#endif
