/*
 * Packs text as members of a gzip file (RFC 1952). Each member can be read without those before it, so what was written
 * whole stays readable whatever becomes of the rest. libz is opened at run time: only packed recordings need it. It
 * stays loaded.
 *
 * Owns: the last member. Invariant: packing always succeeds; where libz finds no host memory, the text is in the member
 * as it is.
 * May be called by: trace. Locks: the caller's.
 */
#ifndef VMM_TRACE_GZIP_H
#define VMM_TRACE_GZIP_H

#include "vmmcache/vmmcache.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Text that can be packed at once: the most that fits a member as it is. */
enum { GZIP_TEXT_MOST = 65535, GZIP_MEMBER_BYTES = GZIP_TEXT_MOST + 32 };

#define GZIP_ENDING ".gz"

struct gzip {
    int (*compress)(unsigned char *out, unsigned long *capacity, const unsigned char *text,
                    unsigned long bytes, int level);
    unsigned long (*checksum)(unsigned long begin, const unsigned char *text, unsigned bytes);
    unsigned char member[GZIP_MEMBER_BYTES];
};

/* The bytes of a name before ".gz"; all of them, if it does not end so. */
static inline size_t vmm__gzip_stem(const char *name)
{
    size_t bytes = strlen(name);
    size_t ending = strlen(GZIP_ENDING);
    bool is_packed = bytes >= ending && strcmp(name + bytes - ending, GZIP_ENDING) == 0;
    return is_packed ? bytes - ending : bytes;
}

/* ERR_UNSUPPORTED: there is no libz; the line names the file that needs it. ERR_HOST_OOM. */
vmm_status vmm__gzip_open(struct gzip **out, const char *path);
void vmm__gzip_close(struct gzip *gzip);

/* Packs 1 to GZIP_TEXT_MOST bytes as the next member, and returns its bytes. */
size_t vmm__gzip_pack(struct gzip *gzip, const char *text, size_t bytes);

#endif
