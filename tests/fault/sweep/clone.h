/* A copy of this process for one fault, made without the handlers of fork(). */
#ifndef SWEEP_CLONE_H
#define SWEEP_CLONE_H

#include <sys/types.h>

/* As fork(): 0 in the child. The process must have no other thread. */
pid_t sweep_clone(void);

#endif
