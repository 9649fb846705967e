/* In place of http.c in a build without libmicrohttpd: see http.h. */
#include "vmmtop/http.h"

#include <stdio.h>

int http_serve(struct processes *processes, const char *address)
{
    (void)processes;
    (void)address;
    (void)fprintf(stderr, "vmmtop: built without libmicrohttpd, which --prometheus needs\n");
    return 2;
}
