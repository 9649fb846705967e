/*
 * Runs a program of the guide on a driver.
 *
 * usage: on_driver host|cuda PROGRAM
 *
 * Exit status: that of the program; 77 for cuda without a GPU (1 with VMM_REQUIRE_GPU=1).
 */
#define _GNU_SOURCE
#include "support/driver_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv)
{
    driver_choice_read(argc, argv);
    if (argc != 3 || setenv("VMM_DRIVER", argv[1], 1) != 0) {
        (void)fprintf(stderr, "usage: %s host|cuda PROGRAM\n", argv[0]);
        return EXIT_USAGE;
    }
    (void)execl(argv[2], argv[2], (char *)NULL);
    perror(argv[2]);
    return EXIT_FAILURE;
}
