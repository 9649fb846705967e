/*
 * What the tests of the program fragtest share: running it as scripts do.
 */
#ifndef COMMAND_SUPPORT_H
#define COMMAND_SUPPORT_H

#include "fragtest_support.h"

#include <stdlib.h>
#include <sys/wait.h>

enum { OUTPUT_BYTES = 1 << 16 };

struct run {
    char output[OUTPUT_BYTES];
    int code;
};

static struct run ran; /* the last one */

/* Runs the fragtest that was built beside this test; `rest` is the command line after its name. */
static inline void command_run(const char *rest)
{
    char command[16384];
    struct test_path own = test_path("");

    *strrchr(own.text, '/') = '\0';
    (void)snprintf(command, sizeof(command), "FRAGTEST='%.4000s/../bin/fragtest'; \"$FRAGTEST\" %s",
                   own.text, rest);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t length = fread(ran.output, 1, OUTPUT_BYTES - 1, out);
    ran.output[length] = '\0';
    int status = pclose(out);
    assert_true(WIFEXITED(status));
    ran.code = WEXITSTATUS(status);
}

static inline void command_expect(const char *rest, int code)
{
    command_run(rest);
    if (ran.code != code)
        fail_msg("fragtest %s: ended with %d, not %d:\n%s", rest, ran.code, code, ran.output);
}

/* Bad usage and bad traces: one line, and nothing else. */
static inline void command_refuse(const char *rest, const char *part)
{
    char line[10500];

    (void)snprintf(line, sizeof(line), "%s 2>&1", rest);
    command_expect(line, 2);
    assert_contains(ran.output, part);
    assert_int_equal(strncmp(ran.output, "fragtest: ", 10), 0);
    assert_int_equal(strcspn(ran.output, "\n"), strlen(ran.output) - 1);
}

#endif
