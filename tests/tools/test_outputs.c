/* The files that the program writes: what they may not replace, and how their writing ends. */
#include "command_support.h"

#include "fragtest/cli/interrupt.h"
#include "fragtest/cli/output.h"

#include <signal.h>
#include <sys/stat.h>

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
    command_refuse(line_of("--driver sim --quiet --trace '%s' %s '%s'", path, option, output),
                   what);
}

TEST(no_output_replaces_a_trace)
{
    struct test_path trace = test_path("in");
    struct test_path other = test_path("link");

    test_file_write(trace.text, trace_text, sizeof(trace_text) - 1);
    (void)unlink(other.text);
    output_refuse(trace.text, "--json", trace.text, ".in: it is a trace; --json would replace it");
    assert_int_equal(symlink(trace.text, other.text), 0);
    output_refuse(trace.text, "--trace gnn --timeline", other.text,
                  ".link: it is a trace; --timeline would replace it");
    (void)unlink(other.text);
    assert_int_equal(link(trace.text, other.text), 0);
    output_refuse(trace.text, "--json", other.text, ".link: it is a trace");
    command_refuse(line_of("--driver sim --trace - --json '%s' < '%s'", other.text, trace.text),
                   ".link: it is a trace");
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

/* What the driver opens must not take the number of a closed output, and with it the table. */
TEST(a_closed_output_is_an_error)
{
    static const char *const drivers[] = { "sim", "host" };

    for (unsigned i = 0; i < 2; i++) {
        command_expect(line_of("--driver %s --workload steady --quiet 2>&1 >&-", drivers[i]), 2);
        assert_contains(ran.output, "fragtest: the output could not be written");
        command_expect(
            line_of("--driver %s --workload steady --quiet --json - 2>&1 >&-", drivers[i]), 2);
        assert_contains(ran.output, "fragtest: the JSON could not be written");
        command_expect(line_of("--driver %s --workload steady --quiet <&- 2>&-", drivers[i]), 0);
        assert_contains(ran.output, "vmmcache survived");
    }
    command_expect("--help 2>/dev/null >&-", 2);
    command_expect("--driver sim --trace - 2>&1 <&-", 2);
    assert_contains(ran.output, "fragtest: stdin:1: ");
}

/* ---- Signals ----------------------------------------------------------------------------------- */

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP };
enum { SIGNALS = 3, NAP_US = 10000, NAPS = 2000 };

/* Starts the program, with a pipe as its standard output that is not read. Returns once it has shown its verdict on
 * standard error. */
static pid_t program_start(const char *rest)
{
    int text[2];
    int unread[2];
    size_t length = 0;

    assert_int_equal(pipe(text) | pipe(unread), 0);
    pid_t child = fork();
    if (child == 0) {
        for (unsigned i = 0; i < SIGNALS; i++)
            (void)signal(ending_signals[i], SIG_DFL); /* the caller of the test may ignore them */
        (void)dup2(unread[1], STDOUT_FILENO);
        (void)dup2(text[1], STDERR_FILENO);
        (void)close(text[0]);
        program_exec(rest);
        _exit(127);
    }
    (void)close(text[1]);
    (void)close(unread[1]);
    for (ssize_t count = 1; count > 0 && strstr(ran.output, "vmmcache survived") == NULL;) {
        count = read(text[0], ran.output + length, OUTPUT_BYTES - 1 - length);
        length += count > 0 ? (size_t)count : 0;
        ran.output[length] = '\0';
    }
    assert_contains(ran.output, "vmmcache survived");
    ran.output[0] = '\0';
    (void)usleep(20 * NAP_US); /* it writes now */
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
    (void)close(text[0]);
    return child;
}

/* The process must end by that signal. */
static void signal_end(pid_t child, int number)
{
    int status = 0;
    pid_t ended = 0;

    assert_int_equal(kill(child, number), 0);
    for (unsigned i = 0; i < NAPS && ended == 0; i++) {
        ended = waitpid(child, &status, WNOHANG);
        (void)usleep(NAP_US);
    }
    if (ended == 0)
        (void)kill(child, SIGKILL);
    assert_int_equal(ended, child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
}

TEST(a_run_that_waits_for_a_reader_can_be_interrupted)
{
    struct test_path fifo = test_path("fifo");

    (void)unlink(fifo.text);
    assert_int_equal(mkfifo(fifo.text, 0600), 0);
    for (unsigned i = 0; i < SIGNALS; i++) {
        signal_end(
            program_start(line_of("--driver sim --trace gnn --quiet --json '%s' >&2", fifo.text)),
            ending_signals[i]);
        signal_end(program_start("--driver sim --trace gnn --quiet --timeline -"),
                   ending_signals[i]);
    }
    (void)unlink(fifo.text);
}

/* Writes a half, and waits. */
static void half_write(const char *path, int told)
{
    static struct output output;
    struct trace_error error;

    for (unsigned i = 0; i < SIGNALS; i++)
        (void)signal(ending_signals[i], SIG_DFL);
    interrupt_init(false);
    FILE *file = output_init(&output, path, &error) ? output_begin(&output) : NULL;
    if (file == NULL || fputs("half", file) < 0 || fflush(file) != 0 || write(told, "x", 1) != 1)
        _exit(1);
    for (;;)
        (void)pause();
}

TEST(an_interrupted_write_leaves_what_was_there)
{
    struct test_path path = test_path("half");
    char byte;
    int told[2];

    test_file_write(path.text, "before", 6);
    for (unsigned i = 0; i < SIGNALS; i++) {
        assert_int_equal(pipe(told), 0);
        pid_t child = fork();
        if (child == 0)
            half_write(path.text, told[1]);
        assert_int_equal(read(told[0], &byte, 1), 1);
        assert_int_equal(files_count(path.text), 2);
        signal_end(child, ending_signals[i]);
        assert_int_equal(files_count(path.text), 1);
        assert_holds(path.text, "before");
        (void)close(told[0]);
        (void)close(told[1]);
    }
    (void)unlink(path.text);
}

/* Such a signal would wait for ever. */
TEST(an_ignored_signal_is_not_waited_for)
{
    sigset_t before;
    void (*handler)(int) = signal(SIGHUP, SIG_IGN);

    interrupt_hold(&before);
    (void)raise(SIGHUP);
    assert_false(interrupt_waits());
    interrupt_release(&before);
    (void)signal(SIGHUP, handler);
}

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

TEST(a_signal_waits_while_it_is_held)
{
    sigset_t before;
    void (*handler)(int) = signal(SIGTERM, on_signal);

    interrupt_hold(&before);
    assert_false(interrupt_waits());
    (void)raise(SIGTERM);
    assert_true(interrupt_waits());
    assert_int_equal(caught, 0);
    interrupt_release(&before);
    assert_int_equal(caught, SIGTERM);
    (void)signal(SIGTERM, handler);
}
