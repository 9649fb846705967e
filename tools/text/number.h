/* Numbers of a command line. Owns nothing. May be called by: fragtest, vmmtop. */
#ifndef TEXT_NUMBER_H
#define TEXT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* The whole number that all of a text is. False: it is none from least to most, and *number is as it was. */
bool number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number);

#endif
