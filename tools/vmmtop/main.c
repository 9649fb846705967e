/*
 * vmmtop: what the caches of running processes do. It reads what they publish with VMM_MONITOR, and changes nothing in
 * them.
 */
#define _GNU_SOURCE
#include "vmmcache/vmmcache.h"
#include "vmmtop/export.h"
#include "vmmtop/http.h"
#include "vmmtop/neighbours.h"
#include "vmmtop/options.h"
#include "vmmtop/screen.h"

#include <errno.h>
#include <locale.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_ABSENT = 1, EXIT_BAD = 2 };

static int fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "vmmtop: %s%s\n", what, why);
    return EXIT_BAD;
}

/* The exit status after a scan. */
static int scan_status(const struct processes *processes)
{
    if (processes->only == 0 || processes->count > 0)
        return 0;
    for (unsigned i = 0; i < processes->refused_count; i++)
        (void)fprintf(stderr, "vmmtop: refused %s: %s\n", processes->refused[i].file,
                      processes->refused[i].why);
    if (processes->foreign > 0)
        (void)fprintf(stderr, "vmmtop: process %llu belongs to another user\n",
                      (unsigned long long)processes->only);
    else if (processes->refused_count == 0)
        (void)fprintf(stderr,
                      "vmmtop: process %llu does not publish in %s; start it with VMM_MONITOR=1\n",
                      (unsigned long long)processes->only, processes->folder);
    return EXIT_ABSENT;
}

/* Rates need two states. */
static bool scan_twice(struct processes *processes, unsigned period_ms)
{
    struct timespec pause = { .tv_sec = period_ms / 1000, .tv_nsec = period_ms % 1000 * 1000000L };
    if (!processes_scan(processes))
        return false;
    unsigned removed = processes->removed;
    if (processes->count > 0)
        (void)nanosleep(&pause, NULL);
    bool is_read = processes_scan(processes);
    processes->removed += removed;
    return is_read;
}

static int text_end(void)
{
    return fflush(stdout) == 0 ? 0 : fail("the output could not be written", "");
}

static int options_run(const struct vmmtop_options *options, struct processes *processes)
{
    bool is_screen = options->mode == MODE_SCREEN && isatty(STDOUT_FILENO);
    if (options->mode == MODE_PROMETHEUS)
        return http_serve(processes, options->address);
    if (is_screen)
        return screen_run(processes, options->period_ms);
    bool is_read = options->mode == MODE_JSON ? processes_scan(processes)
                                              : scan_twice(processes, options->period_ms);
    if (!is_read) {
        (void)fprintf(stderr, "vmmtop: cannot read %s: %s\n", processes->folder, strerror(errno));
        return EXIT_BAD;
    }
    if (options->mode == MODE_JSON)
        export_json(stdout, processes);
    else
        screen_print(processes);
    int code = text_end();
    return code == 0 ? scan_status(processes) : code;
}

int main(int argc, char **argv)
{
    struct vmmtop_options options;
    struct vmmtop_error error;
    (void)setlocale(LC_CTYPE, "");
    if (!vmmtop_options_parse(argc, argv, &options, &error))
        return fail(error.text, "");
    if (options.mode == MODE_HELP) {
        vmmtop_help_write(stdout);
        return text_end();
    }
    if (options.mode == MODE_VERSION) {
        (void)printf("vmmtop, libvmmcache %s\n", vmm_version());
        return text_end();
    }
    if (options.mode == MODE_NEIGHBOURS)
        return neighbours_print(stdout, options.folder)
                   ? text_end()
                   : fail("cannot read the folder: ", strerror(errno));
    struct processes processes = { .folder = options.folder, .only = options.pid };
    int code = options_run(&options, &processes);
    processes_free(&processes);
    return code;
}
