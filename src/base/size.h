/*
 * Sizes as people write them.
 *
 * Owns: nothing. May be called by: everything. Locks: none.
 */
#ifndef VMM_BASE_SIZE_H
#define VMM_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses a whole string: a number, optionally with a fraction, then nothing, B, KiB, MiB, GiB, TiB or one of the
 * letters K, M, G, T (all powers of 1024). Returns false for anything else, and for sizes of 2^63 or more. */
bool vmm__size_parse(const char *text, uint64_t *bytes);

/* As vmm__size_parse(), and also parses "N%" of `whole`. */
bool vmm__size_or_share_parse(const char *text, uint64_t whole, uint64_t *bytes);

/* Writes "1.9 GiB", "410 MiB", "12.0 KiB" or "7 B"; returns text. */
char *vmm__size_write(char *text, size_t text_bytes, uint64_t bytes);

/* Returns a size for a message: "9.5 MiB", or below 1 MiB in KiB. KiB round up, so that only 0 reads "0 KiB". */
struct size_text {
    char text[32];
};
struct size_text vmm__size_text(uint64_t bytes);

#endif
