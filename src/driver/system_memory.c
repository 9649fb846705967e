/* Memory of the operating system, which a device uses: see system_memory.h. */
#define _GNU_SOURCE
#include "driver/system_memory.h"
#include "base/arith.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1024, TEXT_BYTES = 8192 }; /* the file has about 60 lines of 28 characters */

const char *vmm__system_memory_file = "/proc/meminfo";

/* ---- The text -------------------------------------------------------------------------------- */

/* The number on the line that begins with the name. False: no such line, or no number that fits. */
static bool number_find(const char *text, const char *name, uint64_t *number)
{
    const char *line = text;
    size_t length = strlen(name);
    while (line != NULL && strncmp(line, name, length) != 0) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    if (line == NULL)
        return false;
    const char *begin = line + length + strspn(line + length, " ");
    char *end;
    errno = 0;
    unsigned long long found = strtoull(begin, &end, 10);
    if (*begin < '0' || *begin > '9' || errno != 0)
        return false;
    *number = found;
    return true;
}

/* 0 if the text does not say. */
static uint64_t huge_pages_kib(const char *text)
{
    uint64_t pages;
    uint64_t page_kib;
    uint64_t kib;
    bool is_known = number_find(text, "HugePages_Free:", &pages) &&
                    number_find(text, "Hugepagesize:", &page_kib) &&
                    !__builtin_mul_overflow(pages, page_kib, &kib);
    return is_known ? kib : 0;
}

bool vmm__system_memory_parse(const char *text, uint64_t *bytes)
{
    uint64_t available_kib;
    uint64_t found;
    if (!number_find(text, "MemAvailable:", &available_kib))
        return false;
    uint64_t most_kib = vmm__max(available_kib, huge_pages_kib(text));
    if (__builtin_mul_overflow(most_kib, (uint64_t)KIB, &found))
        return false;
    *bytes = found;
    return true;
}

/* ---- The file -------------------------------------------------------------------------------- */

static ssize_t text_read(int file, char text[TEXT_BYTES])
{
    size_t length = 0;
    ssize_t got;
    do {
        got = read(file, text + length, TEXT_BYTES - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    } while (got > 0 || (got < 0 && errno == EINTR));
    text[length] = '\0';
    return got;
}

bool vmm__system_memory_read(uint64_t *bytes)
{
    char text[TEXT_BYTES];
    int file = open(vmm__system_memory_file, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t got = text_read(file, text);
    (void)close(file);
    return got == 0 && vmm__system_memory_parse(text, bytes);
}

uint64_t vmm__system_memory_left(uint64_t bytes, uint64_t total_bytes)
{
    return bytes - vmm__min(bytes, total_bytes / SYSTEM_SHARE);
}
