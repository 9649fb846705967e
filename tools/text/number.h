/* Numbers of a command line. Owns nothing. May be called by: fragtest, vmmtop. */
#ifndef TEXT_NUMBER_H
#define TEXT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a text that is one whole number from `least` to `most`. False: it is not, and *number stays. */
bool number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number);

#endif
