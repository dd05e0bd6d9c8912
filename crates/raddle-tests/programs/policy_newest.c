/* A policy that is right. */
#include "policy.h"
