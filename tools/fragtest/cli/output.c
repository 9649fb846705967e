/* Files of results: see output.h. */
#include "fragtest/cli/output.h"

#include "fragtest/cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW_FILE_MODE 0666 /* less the umask */

/* A signal comes before the file is there, or once it is known who removes it. */
static int temporary_open(const struct output *output)
{
    sigset_t signals;

    interrupt_hold(&signals);
    int descriptor =
        open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, NEW_FILE_MODE);
    if (descriptor >= 0)
        interrupt_removes(output->temporary);
    interrupt_release(&signals);
    return descriptor;
}

/* The temporary file gets its name, if `path` is not NULL, or goes; then it is not there any more. */
static bool temporary_end(const struct output *output, const char *path)
{
    sigset_t signals;

    interrupt_hold(&signals);
    bool is_moved = path != NULL && rename(output->temporary, path) == 0;
    bool is_gone = is_moved || unlink(output->temporary) == 0;
    interrupt_removes(NULL);
    interrupt_release(&signals);
    return path == NULL ? is_gone : is_moved;
}

static FILE *file_create(const struct output *output)
{
    struct stat status;
    int descriptor = temporary_open(output);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");

    if (file == NULL && descriptor >= 0) {
        (void)close(descriptor);
        (void)temporary_end(output, NULL);
    }
    if (file != NULL && stat(output->path, &status) == 0)
        (void)fchmod(descriptor, status.st_mode & 07777);
    return file;
}

/* The temporary name, if the path is an ordinary file or none: else it is written directly. */
static bool path_settle(struct output *output)
{
    struct stat status;
    bool is_there = stat(output->name, &status) == 0;

    if (is_there && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return false;
    }
    if (is_there && realpath(output->name, output->path) == NULL)
        return false;
    if (!is_there && snprintf(output->path, PATH_MAX, "%s", output->name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (!is_there || S_ISREG(status.st_mode))
        (void)snprintf(output->temporary, sizeof(output->temporary), "%s.%ld.tmp", output->path,
                       (long)getpid());
    return true;
}

static bool path_is_writable(const struct output *output)
{
    if (output->temporary[0] == '\0')
        return access(output->path, W_OK) == 0;
    FILE *file = file_create(output);
    return file != NULL && fclose(file) == 0 && temporary_end(output, NULL);
}

bool output_init(struct output *output, const char *name, struct trace_error *error)
{
    *output = (struct output){ .name = name };
    if (name == NULL || output_is_stdout(name) || (path_settle(output) && path_is_writable(output)))
        return true;
    (void)snprintf(error->text, sizeof(error->text), "cannot write %.200s: %s", name,
                   strerror(errno));
    return false;
}

FILE *output_begin(struct output *output)
{
    if (output->name == NULL)
        return NULL;
    if (output_is_stdout(output->name))
        output->file = stdout;
    else if (output->temporary[0] == '\0')
        output->file = fopen(output->path, "we");
    else
        output->file = file_create(output);
    return output->file;
}

bool output_end(struct output *output)
{
    if (output->file == NULL)
        return output->name == NULL;
    bool ok = fflush(output->file) == 0 && ferror(output->file) == 0;
    if (output->file != stdout)
        ok = fclose(output->file) == 0 && ok;
    if (output->temporary[0] != '\0')
        ok = temporary_end(output, ok ? output->path : NULL) && ok;
    output->file = NULL;
    return ok;
}
