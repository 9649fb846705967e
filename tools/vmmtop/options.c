/* The command line of vmmtop: see options.h. */
#define _GNU_SOURCE
#include "vmmtop/options.h"

#include "base/error.h"
#include "monitor/format.h"
#include "text/number.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS_MOST = 3600 };

static const char help[] =
    "usage: vmmtop [PID] [--once | --json | --prometheus [HOST]:PORT | --neighbours] [--dir "
    "FOLDER]\n"
    "              [--seconds N]\n"
    "\n"
    "Shows what the caches of libvmmcache in running processes have reserved, what is live, and "
    "what\n"
    "they ask of the driver. A process is shown if it was started with VMM_MONITOR=1, by the same "
    "user.\n"
    "\n"
    "  PID                        only this process, with its pools and streams\n"
    "  --once                     print once, after one period, and end\n"
    "  --json                     print one JSON object and end\n"
    "  --prometheus [HOST]:PORT   serve /metrics until it is interrupted; HOST is 127.0.0.1 by "
    "default\n"
    "  --neighbours               print what processes with VMM_NEIGHBOURS=1 show each other, and "
    "end:\n"
    "                             a bar, as long as the largest, has live memory (#), idle "
    "memory\n"
    "                             that others could get (.), and the rest (+)\n"
    "  --dir FOLDER               where processes publish; default " MONITOR_DIRECTORY
    ", else what VMM_MONITOR\n"
    "                             or VMM_NEIGHBOURS_DIR named\n"
    "  --seconds N                period of the screen and of rates; default 1\n"
    "  --version                  show the version\n"
    "  -h, --help                 show this text\n"
    "\n"
    "Columns: RESERVED is physical memory, LIVE the blocks of the program, FREE what a trim can "
    "return at\n"
    "the most; /s are rates; DRIVER is the share of the time that calls of the driver take; OOM "
    "counts\n"
    "requests that failed. \"silent\": the process has not published for seconds; it may be "
    "stopped.\n"
    "\n"
    "Files that processes left that have ended are removed. Files that are damaged, or that others "
    "may\n"
    "have written, are named and not shown.\n"
    "\n"
    "Exit status: 0; 1 if PID does not publish; 2 for bad usage, or if the folder cannot be "
    "read.\n";

void vmmtop_help_write(FILE *out)
{
    (void)fputs(help, out);
}

static bool fail(struct vmmtop_error *error, const char *what, const char *text)
{
    (void)snprintf(error->text, sizeof error->text, "%s \"%.60s\"", what, text);
    vmm__line_make(error->text);
    return false;
}

/* The options that are no modes, by what getopt_long() returns for them; a mode is its own number. */
enum { OPTION_DIR = 'd', OPTION_SECONDS = 's' };

/* Those of modes are in the order of the modes. */
static const struct option known[] = { { "once", no_argument, NULL, MODE_ONCE },
                                       { "json", no_argument, NULL, MODE_JSON },
                                       { "prometheus", required_argument, NULL, MODE_PROMETHEUS },
                                       { "neighbours", no_argument, NULL, MODE_NEIGHBOURS },
                                       { "help", no_argument, NULL, MODE_HELP },
                                       { "version", no_argument, NULL, MODE_VERSION },
                                       { "dir", required_argument, NULL, OPTION_DIR },
                                       { "seconds", required_argument, NULL, OPTION_SECONDS },
                                       { NULL, 0, NULL, 0 } };

/* At most one, but for those that end the parsing. */
static bool mode_take(enum vmmtop_mode mode, struct vmmtop_options *options,
                      struct vmmtop_error *error)
{
    char name[32];
    (void)snprintf(name, sizeof name, "--%s", known[mode - MODE_ONCE].name);
    if (options->mode != MODE_SCREEN && mode < MODE_HELP)
        return fail(error, "only one of --once, --json, --prometheus and --neighbours, not also",
                    name);
    options->mode = mode;
    options->address = mode == MODE_PROMETHEUS ? optarg : options->address;
    return true;
}

static bool option_take(int option, char **argv, struct vmmtop_options *options,
                        struct vmmtop_error *error)
{
    uint64_t number;
    switch (option) {
    case OPTION_DIR:
        options->folder = optarg;
        return true;
    case OPTION_SECONDS:
        if (!number_parse(optarg, 1, SECONDS_MOST, &number))
            return fail(error, "--seconds takes a number from 1 to 3600, not", optarg);
        options->period_ms = (unsigned)number * 1000;
        return true;
    case ':':
        return fail(error, "a value is missing after", argv[optind - 1]);
    case '?':
        return fail(error, "unknown option", argv[optind - 1]);
    default:
        return mode_take(option == 'h' ? MODE_HELP : (enum vmmtop_mode)option, options, error);
    }
}

/* What the environment names, as processes read it. With another VMM_NEIGHBOURS_DIR they have no neighbours. */
static bool folder_choose(struct vmmtop_options *options, struct vmmtop_error *error)
{
    bool are_neighbours = options->mode == MODE_NEIGHBOURS;
    const char *folder = getenv(are_neighbours ? "VMM_NEIGHBOURS_DIR" : "VMM_MONITOR");
    bool is_path = folder != NULL && *folder == '/';
    options->folder = is_path ? folder : MONITOR_DIRECTORY;
    if (are_neighbours && !is_path && folder != NULL && *folder != '\0')
        return fail(error, "VMM_NEIGHBOURS_DIR does not begin with /:", folder);
    return true;
}

bool vmmtop_options_parse(int argc, char **argv, struct vmmtop_options *options,
                          struct vmmtop_error *error)
{
    *options = (struct vmmtop_options){ .period_ms = 1000 };
    opterr = 0;
    optind = 0;
    for (int option = 0; (option = getopt_long(argc, argv, ":h", known, NULL)) != -1;) {
        if (!option_take(option, argv, options, error))
            return false;
        if (options->mode == MODE_HELP || options->mode == MODE_VERSION)
            return true;
    }
    if (options->folder == NULL && !folder_choose(options, error))
        return false;
    if (optind < argc && !number_parse(argv[optind], 1, UINT32_MAX, &options->pid))
        return fail(error, "not the number of a process:", argv[optind]);
    if (optind + 1 < argc)
        return fail(error, "only one process can be named, not also", argv[optind + 1]);
    if (optind < argc && options->mode == MODE_NEIGHBOURS)
        return fail(error, "--neighbours shows all processes, and takes no", argv[optind]);
    return true;
}
