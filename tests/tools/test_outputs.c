/* The files that the program writes: what they may not replace, and how their writing ends. */
#include "command_support.h"

static const char trace_text[] = "+ 1 4096 0\n- 1\n";

static void assert_holds(const char *path, const char *expected)
{
    char text[64] = "";
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof(text) - 1, file), strlen(expected));
    (void)fclose(file);
    assert_string_equal(text, expected);
}

/* Refuses a run of the trace `path` with an option that names `output`. */
static void output_refuse(const char *path, const char *option, const char *output,
                          const char *what)
{
    char rest[10000];

    (void)snprintf(rest, sizeof(rest), "--driver sim --quiet --trace '%s' %s '%s'", path, option,
                   output);
    command_refuse(rest, what);
}

TEST(no_output_replaces_a_trace)
{
    struct test_path trace = test_path("in");
    struct test_path other = test_path("link");
    char rest[10000];

    test_file_write(trace.text, trace_text, sizeof(trace_text) - 1);
    (void)unlink(other.text);
    output_refuse(trace.text, "--json", trace.text, ".in: it is a trace; --json would replace it");
    assert_int_equal(symlink(trace.text, other.text), 0);
    output_refuse(trace.text, "--trace gnn --timeline", other.text,
                  ".link: it is a trace; --timeline would replace it");
    (void)unlink(other.text);
    assert_int_equal(link(trace.text, other.text), 0);
    output_refuse(trace.text, "--json", other.text, ".link: it is a trace");
    (void)snprintf(rest, sizeof(rest), "--driver sim --trace - --json '%s' < '%s'", other.text,
                   trace.text);
    command_refuse(rest, ".link: it is a trace");
    assert_holds(trace.text, trace_text);
    (void)unlink(other.text);
    (void)unlink(trace.text);
}

TEST(no_output_replaces_another)
{
    struct test_path first = test_path("out");
    struct test_path other = test_path("link");
    char option[9000];
    char name[5000];

    (void)unlink(first.text);
    (void)unlink(other.text);
    (void)snprintf(option, sizeof(option), "--json '%s' --timeline", first.text);
    output_refuse("gnn", option, first.text, ".out: --json and --timeline are the same file");
    *strrchr(strcpy(name, first.text), '/') = '\0';
    (void)snprintf(name + strlen(name), 64, "/.%s", strrchr(first.text, '/'));
    output_refuse("gnn", option, name, ".out: --json and --timeline are the same file");
    assert_int_not_equal(access(first.text, F_OK), 0);
    test_file_write(first.text, "before", 6);
    assert_int_equal(symlink(first.text, other.text), 0);
    output_refuse("gnn", option, other.text, ".link: --json and --timeline are the same file");
    assert_holds(first.text, "before");
    (void)unlink(other.text);
    (void)unlink(first.text);
    command_expect("--driver sim --workload steady --quiet --json /dev/null --timeline /dev/null",
                   0);
}
