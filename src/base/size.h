/* Sizes as people write them. May be called by: everything. */
#ifndef VMM_BASE_SIZE_H
#define VMM_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads a whole string: a number, perhaps with a fraction, and B, KiB, MiB, GiB, TiB or the letters
 * K, M, G, T (all powers of 1024). False for anything else, negative numbers and numbers beyond
 * 2^63.
 */
bool vmm__size_parse(const char *text, uint64_t *bytes);

/* The same, or "N%" of `whole`. */
bool vmm__size_or_share_parse(const char *text, uint64_t whole, uint64_t *bytes);

/* Writes "1.9 GiB", "410 MiB", "12 KiB", "7 B"; returns text. */
char *vmm__size_write(char *text, size_t text_bytes, uint64_t bytes);

#endif
