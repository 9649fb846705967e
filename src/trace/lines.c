/* A file of lines: see lines.h. */
#define _GNU_SOURCE
#include "trace/lines.h"
#include "base/arith.h"
#include "base/file_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static vmm_status open_failed(int file, const char *path, const char *why)
{
    if (file >= 0)
        (void)close(file);
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "trace: cannot write %.200s: %s", path, why);
}

/* The lock belongs to this open file, so it also keeps a second recorder of this process, and a child of fork(), from
 * it. */
static vmm_status file_open(const char *path, int *out)
{
    struct stat about;
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file < 0 || fstat(file, &about) != 0)
        return open_failed(file, path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return open_failed(file, path, "not a regular file");
    if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        (void)open_failed(file, path, "another recording writes it");
        return VMM__IN_USE;
    }
    if (ftruncate(file, 0) != 0)
        return open_failed(file, path, strerror(errno));
    *out = file;
    return VMM_OK;
}

vmm_status vmm__lines_open(struct lines *lines, const char *path)
{
    struct gzip *gzip = NULL;
    bool is_packed = path[vmm__gzip_stem(path)] != '\0';
    vmm_status status = is_packed ? vmm__gzip_open(&gzip, path) : VMM_OK;
    if (status == VMM_OK)
        status = file_open(path, &lines->file);
    if (status != VMM_OK) {
        vmm__gzip_close(gzip);
        return status;
    }
    lines->gzip = gzip;
    lines->failure = 0;
    lines->offset = lines->end = lines->last = lines->used = 0;
    return VMM_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Text in the form that the file has it in; valid until the next piece is made. */
struct piece {
    const void *bytes;
    size_t count;
};

static struct piece piece_make(struct lines *lines, const char *text, size_t bytes)
{
    if (lines->gzip == NULL)
        return (struct piece){ text, bytes };
    size_t count = vmm__gzip_pack(lines->gzip, text, bytes);
    return (struct piece){ lines->gzip->member, count };
}

/* Says at the end of the file why no more follows, in place of the last page or member: without this line the file
 * would look whole. */
static void failure_write(struct lines *lines)
{
    char line[LINE_MOST];
    if (lines->last == 0) /* it has the head */
        return;
    int length = snprintf(line, sizeof line, "#@ note the recording ends here: %s\n",
                          strerror(lines->failure));
    struct piece piece = piece_make(lines, line, (size_t)length);
    if (vmm__file_may_have(lines->last + 1) && ftruncate(lines->file, (off_t)lines->last) == 0)
        (void)!pwrite(lines->file, piece.bytes, piece.count, (off_t)lines->last);
}

/* Leaves whole lines in the file: what was written ends with one at the boundary of each page, or after a member. */
static void write_failed(struct lines *lines, uint64_t written)
{
    lines->failure = errno;
    if (lines->gzip == NULL) {
        uint64_t whole = (lines->end + written) / LINES_PAGE * LINES_PAGE;
        lines->end = vmm__max(lines->end, whole);
        lines->last = lines->end == 0 ? 0 : (lines->end - 1) / LINES_PAGE * LINES_PAGE;
    }
    (void)!ftruncate(lines->file, (off_t)lines->end);
    failure_write(lines);
}

static void piece_write(struct lines *lines, struct piece piece)
{
    uint64_t written = 0;
    while (lines->failure == 0 && written < piece.count) {
        const char *rest = (const char *)piece.bytes + written;
        ssize_t count = -1;
        if (vmm__file_may_have(lines->end + written + 1))
            count = write(lines->file, rest, piece.count - written);
        if (count >= 0)
            written += (uint64_t)count;
        else if (errno != EINTR)
            write_failed(lines, written);
    }
    if (lines->failure == 0) {
        lines->last = lines->end;
        lines->end += written;
    }
}

_Static_assert((int)LINES_BYTES - (int)LINES_PAGE + 2 * (int)LINE_MOST <= (int)GZIP_TEXT_MOST,
               "what a flush passes on fits a member");

void vmm__lines_flush(struct lines *lines)
{
    if (lines->failure == 0 && lines->used > 0)
        piece_write(lines, piece_make(lines, lines->buffer, lines->used));
    lines->offset += lines->used;
    lines->used = 0;
}

void vmm__lines_make_room(struct lines *lines)
{
    if (lines->used + LINES_PAGE > LINES_BYTES)
        vmm__lines_flush(lines);
    uint64_t rest = LINES_PAGE - (lines->offset + lines->used) % LINES_PAGE;
    if (rest < LINE_MOST) {
        memset(lines->buffer + lines->used, '\n', rest);
        lines->used += rest;
    }
}

void vmm__lines_close(struct lines *lines)
{
    if (lines->file < 0)
        return;
    vmm__lines_flush(lines);
    (void)flock(lines->file, LOCK_UN); /* a child of fork() has the open file, too */
    if (close(lines->file) != 0 && lines->failure == 0)
        lines->failure = errno;
    lines->file = -1;
    vmm__gzip_close(lines->gzip);
    lines->gzip = NULL;
}
