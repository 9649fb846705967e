/*
 * The program itself, as people use it: what it shows on terminals, and what an interrupted run leaves.
 */
#include "command_support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

/* A terminal of 60 columns on which fragtest runs; the caller reads and waits. */
struct terminal {
    int master;
    pid_t child;
};

static struct terminal terminal_start(const char *term, const char *rest)
{
    struct winsize size = { .ws_row = 24, .ws_col = 60 };
    struct terminal terminal = { .master = posix_openpt(O_RDWR | O_NOCTTY) };

    assert_true(terminal.master >= 0);
    assert_int_equal(grantpt(terminal.master) | unlockpt(terminal.master), 0);
    terminal.child = fork();
    assert_true(terminal.child >= 0);
    if (terminal.child > 0)
        return terminal;
    int slave = open(ptsname(terminal.master), O_RDWR | O_NOCTTY);
    (void)ioctl(slave, TIOCSWINSZ, &size);
    for (int standard = 0; standard < 3; standard++)
        (void)dup2(slave, standard);
    (void)close(slave);
    (void)close(terminal.master);
    (void)setenv("TERM", term, 1);
    (void)unsetenv("NO_COLOR");
    program_exec(rest);
    _exit(127);
}

/* Reads until the text has `part`, or, if that is NULL, to the end. */
static void terminal_read(const struct terminal *terminal, const char *part)
{
    size_t length = 0;

    ran.output[0] = '\0';
    while (length + 1 < OUTPUT_BYTES && (part == NULL || strstr(ran.output, part) == NULL)) {
        ssize_t count = read(terminal->master, ran.output + length, OUTPUT_BYTES - 1 - length);
        if (count <= 0)
            break;
        length += (size_t)count;
        ran.output[length] = '\0';
    }
}

static int terminal_end(const struct terminal *terminal)
{
    int status;

    assert_int_equal(waitpid(terminal->child, &status, 0), terminal->child);
    (void)close(terminal->master);
    return status;
}

static void terminal_run(const char *term, const char *rest)
{
    struct terminal terminal = terminal_start(term, rest);

    terminal_read(&terminal, NULL);
    assert_int_equal(terminal_end(&terminal), 0);
}

/* Everything that people see fits 40 columns, and what is no terminal gets plain ASCII. */
TEST(test_narrow_terminal)
{
    (void)setenv("COLUMNS", "40", 1);
    command_expect("--help", 0);
    assert_true(widest_line(ran.output) <= 40);
    command_expect("--driver sim --trace encoder_streams --trace gnn --memory 105% --lag 100 "
                   "--trims 3 --passes 2 2>&1",
                   0);
    (void)unsetenv("COLUMNS");
    assert_true(widest_line(ran.output) <= 40);
}

TEST(test_progress_in_plain_text)
{
    command_expect("--driver sim --trace gnn --policy vmmcache 2>&1 >/dev/null", 0);
    assert_string_equal(ran.output, "gnn, vmmcache\n");
    terminal_run("dumb", "--driver sim --trace gnn --policy vmmcache");
    assert_null(strchr(ran.output, '\033'));
    assert_contains(ran.output, "gnn, vmmcache\r\n");
    terminal_run("xterm", "--driver sim --trace gnn --policy vmmcache");
    assert_contains(ran.output, "\033[32m");
    assert_true(widest_line(strstr(ran.output, "\r\n") + 2) <= 61); /* with the \r */
}

TEST(test_interrupted_run_leaves_no_file)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    struct test_path path = test_path("interrupted");
    char rest[10000];

    (void)snprintf(rest, sizeof(rest),
                   "--driver sim --workload varlen --passes 1000 --json '%s' --timeline '%s.csv'",
                   path.text, path.text);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct terminal terminal = terminal_start("xterm", rest);
        terminal_read(&terminal, " %");
        assert_int_equal(kill(terminal.child, signals[i]), 0);
        terminal_read(&terminal, NULL);
        int status = terminal_end(&terminal);
        assert_true(WIFSIGNALED(status)); /* which a shell shows as 128 + the number */
        assert_int_equal(WTERMSIG(status), signals[i]);
        assert_int_equal(files_count(path.text), 0);
        assert_null(strchr(ran.output, '\n'));
        assert_string_equal(ran.output + strlen(ran.output) - 4, "\r\033[K");
    }
}

/* A file that is there keeps its rights, its links, and until the end its contents. */
TEST(test_files_are_replaced_whole)
{
    struct test_path path = test_path("replaced");
    struct test_path link = test_path("link");
    struct stat status;

    test_file_write(path.text, "before", 6);
    assert_int_equal(chmod(path.text, 0640), 0);
    (void)unlink(link.text);
    assert_int_equal(symlink(path.text, link.text), 0);
    command_expect(line_of("--driver sim --workload steady --quiet --json '%s'", link.text), 0);
    assert_int_equal(lstat(link.text, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat(path.text, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
    assert_true(status.st_size > 1000);
    (void)unlink(path.text);
    (void)unlink(link.text);
    command_expect("--driver sim --workload steady --quiet --json /dev/null", 0);
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    command_expect("--driver sim --workload steady --quiet --json /dev/full 2>/dev/null", 2);
    command_expect("--help 2>/dev/null >/dev/full", 2);
    command_expect("--version 2>/dev/null >/dev/full", 2);
    command_expect("--workload list 2>/dev/null >/dev/full", 2);
    command_refuse("--driver sim --workload steady --json /tmp",
                   "cannot write /tmp: Is a directory");
}
