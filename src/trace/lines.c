/* A file of lines: see lines.h. */
#define _GNU_SOURCE
#include "trace/lines.h"

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
vmm_status vmm__lines_open(struct lines *lines, const char *path)
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
    lines->file = file;
    lines->failure = 0;
    lines->offset = lines->used = 0;
    return VMM_OK;
}

/* Says at the end of the file why no more follows, in place of the last page: without this line the file would look
 * whole. */
static void failure_write(struct lines *lines)
{
    char line[LINE_MOST];
    if (lines->offset <= LINES_PAGE) /* it has the head */
        return;
    uint64_t offset = (lines->offset - 1) / LINES_PAGE * LINES_PAGE;
    int length = snprintf(line, sizeof line, "#@ note the recording ends here: %s\n",
                          strerror(lines->failure));
    if (ftruncate(lines->file, (off_t)offset) == 0 &&
        pwrite(lines->file, line, (size_t)length, (off_t)offset) == length)
        lines->offset = offset + (uint64_t)length;
}

/* Leaves whole lines in the file: what was written ends with one at the boundary of each page. */
static void write_failed(struct lines *lines, uint64_t written)
{
    lines->failure = errno;
    uint64_t whole = (lines->offset + written) / LINES_PAGE * LINES_PAGE;
    if (whole > lines->offset)
        lines->offset = whole;
    (void)!ftruncate(lines->file, (off_t)lines->offset);
    failure_write(lines);
}

void vmm__lines_flush(struct lines *lines)
{
    uint64_t written = 0;
    while (lines->failure == 0 && written < lines->used) {
        ssize_t count = write(lines->file, lines->buffer + written, lines->used - written);
        if (count >= 0)
            written += (uint64_t)count;
        else if (errno != EINTR)
            write_failed(lines, written);
    }
    if (lines->failure == 0)
        lines->offset += written;
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
    if (close(lines->file) != 0 && lines->failure == 0)
        lines->failure = errno;
    lines->file = -1;
}
