/*
 * The endpoint that Prometheus scrapes: GET /metrics, by libmicrohttpd. Owns the server until it returns. May be called
 * by: vmmtop. Locks: none; libmicrohttpd's one thread reads the processes.
 */
#ifndef VMMTOP_HTTP_H
#define VMMTOP_HTTP_H

#include "vmmtop/processes.h"

/* Serves until SIGINT or SIGTERM. `address` is [HOST]:PORT; HOST is 127.0.0.1 if it is left out, and a numeric address.
 * Prints its URL to standard error; port 0 lets the system choose one. Returns the exit status of the program. */
int http_serve(struct processes *processes, const char *address);

#endif
