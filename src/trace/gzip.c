/* Packs text as members of a gzip file: see gzip.h. */
#define _GNU_SOURCE
#include "trace/gzip.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/symbol.h"

#include <dlfcn.h>

/* Further levels of libz make a recording smaller by a tenth to a quarter, and take up to four times as long. */
enum { LEVEL = 1, HEAD_BYTES = 10, TAIL_BYTES = 8, STORED_BYTES = 5 };

/* What compress2() puts around the packed text, and what it returns. */
enum { LIBZ_HEAD_BYTES = 2, LIBZ_TAIL_BYTES = 4, LIBZ_OK = 0 };

_Static_assert(HEAD_BYTES + STORED_BYTES + GZIP_TEXT_MOST + TAIL_BYTES <= GZIP_MEMBER_BYTES,
               "text that is not packed fits");

static const char library_name[] = "libz.so.1";

/* ---- libz ------------------------------------------------------------------------------------ */

static vmm_status libz_missing(const char *path, const char *reason)
{
    return vmm__error(VMM_ERR_UNSUPPORTED, "trace: %.200s needs %s: %s", path, library_name,
                      reason != NULL ? reason : "it cannot be opened");
}

vmm_status vmm__gzip_open(struct gzip **out, const char *path)
{
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return libz_missing(path, dlerror());
    struct gzip *gzip = vmm__host_alloc(1, sizeof *gzip);
    if (gzip == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "trace: no host memory to pack the file");
    if (!vmm__symbol_store(dlsym(library, "compress2"), &gzip->compress) ||
        !vmm__symbol_store(dlsym(library, "crc32"), &gzip->checksum)) {
        vmm__gzip_close(gzip);
        return libz_missing(path, "it is not zlib");
    }
    *out = gzip;
    return VMM_OK;
}

void vmm__gzip_close(struct gzip *gzip)
{
    vmm__host_free(gzip, sizeof *gzip);
}

/* ---- Members --------------------------------------------------------------------------------- */

static unsigned char *put_little(unsigned char *at, unsigned long number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *at++ = (unsigned char)(number >> i * 8);
    return at;
}

/* The end of the packed text, which begins after the head; NULL: libz has failed, or the text would grow. */
static unsigned char *text_compress(struct gzip *gzip, const char *text, size_t bytes)
{
    unsigned char *out =
        gzip->member + HEAD_BYTES - LIBZ_HEAD_BYTES; /* the head comes over libz's */
    unsigned long packed = sizeof gzip->member - HEAD_BYTES - TAIL_BYTES;
    if (gzip->compress(out, &packed, (const unsigned char *)text, bytes, LEVEL) != LIBZ_OK)
        return NULL;
    return out + packed - LIBZ_TAIL_BYTES;
}

/* One block that is stored: RFC 1951, 3.2.4. */
static unsigned char *text_store(struct gzip *gzip, const char *text, size_t bytes)
{
    unsigned char *at = put_little(gzip->member + HEAD_BYTES, 1, 1);
    at = put_little(at, bytes, 2);
    at = put_little(at, ~bytes, 2);
    memcpy(at, text, bytes);
    return at + bytes;
}

size_t vmm__gzip_pack(struct gzip *gzip, const char *text, size_t bytes)
{
    static const unsigned char head[HEAD_BYTES] = { 0x1F, 0x8B, 8, [9] = 3 }; /* deflate; Unix */
    unsigned char *at = text_compress(gzip, text, bytes);
    if (at == NULL)
        at = text_store(gzip, text, bytes);
    memcpy(gzip->member, head, sizeof head);
    at = put_little(at, gzip->checksum(0, (const unsigned char *)text, (unsigned)bytes), 4);
    at = put_little(at, bytes, 4);
    return (size_t)(at - gzip->member);
}
