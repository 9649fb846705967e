/* Files of results: see output.h. */
#include "fragtest/cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW_FILE_MODE 0666 /* less the umask */

static FILE *file_create(const struct output *output)
{
    struct stat status;
    int descriptor =
        open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, NEW_FILE_MODE);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");

    if (file == NULL && descriptor >= 0) {
        (void)close(descriptor);
        (void)unlink(output->temporary);
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
    return file != NULL && fclose(file) == 0 && unlink(output->temporary) == 0;
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
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &signals, &output->signals);
    if (output_is_stdout(output->name))
        output->file = stdout;
    else if (output->temporary[0] == '\0')
        output->file = fopen(output->path, "we");
    else
        output->file = file_create(output);
    return output->file;
}

bool output_end(struct output *output, bool ok)
{
    bool is_stdout = output->file == stdout;
    bool is_moved = output->file != NULL && output->temporary[0] != '\0';

    ok = ok && output->file != NULL && fflush(output->file) == 0;
    if (output->file != NULL && !is_stdout)
        ok = fclose(output->file) == 0 && ok;
    if (is_moved) {
        ok = ok && rename(output->temporary, output->path) == 0;
        if (!ok)
            (void)unlink(output->temporary);
    }
    output->file = NULL;
    (void)sigprocmask(SIG_SETMASK, &output->signals, NULL);
    return ok;
}
