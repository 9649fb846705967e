/* Which files of a folder are shown, refused, removed or left alone. */
#define _GNU_SOURCE
#include "segment_support.h"

#include "vmmtop/processes.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[64];
static struct processes processes;

static int folder_make(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/vmm-processes-XXXXXX");
    processes = (struct processes){ .folder = folder };
    return mkdtemp(folder) == NULL;
}

/* Fails if anything is left. */
static int folder_remove(void **state)
{
    (void)state;
    processes_free(&processes);
    return rmdir(folder);
}

#define FOLDER_TEST(name) TEST_BETWEEN(name, folder_make, folder_remove)

struct path {
    char text[128];
};

static struct path path_of(uint64_t pid, const char *rest)
{
    struct path path;
    (void)snprintf(path.text, sizeof path.text, "%s/" MONITOR_PREFIX "%llu%s", folder,
                   (unsigned long long)pid, rest);
    return path;
}

static struct path own_path(void)
{
    return path_of((uint64_t)getpid(), ".0");
}

static void file_write(struct path path, const struct sample *sample, size_t bytes, mode_t mode)
{
    int file = open(path.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, sample, bytes), bytes);
    assert_int_equal(fchmod(file, mode), 0);
    (void)close(file);
}

/* One file that is not shown, and why. */
static void scan_refuse(const char *why)
{
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count, 0);
    assert_int_equal(processes.removed, 0);
    assert_int_equal(processes.refused_count, 1);
    assert_string_equal(processes.refused[0].why, why);
}

static void remove_file(struct path path)
{
    assert_int_equal(unlink(path.text), 0);
}

/* The pid of a process that has ended. */
static pid_t ended_pid(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return child;
}

FOLDER_TEST(a_running_process_is_shown_with_rates)
{
    struct sample sample = sample_make();
    file_write(own_path(), &sample, sizeof sample, 0600);
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count, 1);
    assert_int_equal(processes.refused_count, 0);
    const struct process *process = processes.items;
    assert_int_equal(process->pid, getpid());
    assert_true(process->age_seconds >= 0 && process->age_seconds < 60);
    assert_true(process_rate(process, 5, 5) < 0);
    sample.head.sequence++;
    sample.head.time_ns += 500000000;
    sample_seal(&sample);
    file_write(own_path(), &sample, sizeof sample, 0600);
    assert_true(processes_scan(&processes));
    assert_true(processes_scan(&processes)); /* the same state once more */
    process = processes.items;
    assert_true(process_rate(process, 1100, 1000) > 199.9);
    assert_true(process_rate(process, 1100, 1000) < 200.1);
    assert_true(process_rate(process, 1000, 1100) == 0); /* a value that was off */
    remove_file(own_path());
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count, 0);
}

FOLDER_TEST(only_the_named_process_is_read)
{
    struct sample sample = sample_make();
    file_write(own_path(), &sample, sizeof sample, 0600);
    processes.only = 1;
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count, 0);
    processes.only = (uint64_t)getpid();
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count, 1);
    remove_file(own_path());
}

FOLDER_TEST(what_an_ended_process_left_is_removed)
{
    uint64_t pid = (uint64_t)ended_pid();
    struct sample sample = sample_make();
    sample.head.pid = pid;
    sample_seal(&sample);
    file_write(path_of(pid, ".0"), &sample, sizeof sample, 0600);
    sample.first.pools++;
    file_write(path_of(pid, ".1"), &sample, sizeof sample, 0600); /* killed while it wrote */
    sample = sample_make();
    sample.head.start_ticks--; /* an earlier process with our pid */
    sample_seal(&sample);
    file_write(own_path(), &sample, sizeof sample, 0600);
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count, 0);
    assert_int_equal(processes.refused_count, 0);
    assert_int_equal(processes.removed, 3);
}

/* That no process here has the pid of a name proves nothing: the file may be of a process in another pid namespace, or
 * never have been a segment. */
FOLDER_TEST(what_no_process_is_known_to_have_left_stays)
{
    struct sample sample = sample_make();
    uint64_t pid = (uint64_t)ended_pid();
    struct path path = path_of(pid, ".1");
    sample.head.pid = pid;
    file_write(path, &sample, 10, 0600);
    scan_refuse("it is cut");
    sample.head.version++;
    file_write(path, &sample, sizeof sample, 0600);
    scan_refuse("format 4; this vmmtop reads format 3");
    sample.head.version--;
    sample.head.pid_space++;
    file_write(path, &sample, sizeof sample, 0600); /* it is being written */
    scan_refuse("its checksum is wrong");
    sample_seal(&sample);
    file_write(path, &sample, sizeof sample, 0600);
    scan_refuse("its process is in another pid namespace");
    sample.head.magic[0]++;
    file_write(path, &sample, sizeof sample, 0600);
    scan_refuse("not a segment of vmmcache");
    remove_file(path);
}

FOLDER_TEST(damaged_and_forged_files_are_refused_and_stay)
{
    struct sample sample = sample_make();
    file_write(own_path(), &sample, sizeof sample - 1, 0600);
    scan_refuse("it is cut");
    file_write(own_path(), &sample, 0, 0600);
    scan_refuse("it is cut");
    sample.first.pools++;
    file_write(own_path(), &sample, sizeof sample, 0600);
    scan_refuse("its checksum is wrong");
    sample_seal(&sample);
    file_write(own_path(), &sample, sizeof sample, 0600);
    scan_refuse("its records do not add up");
    sample = sample_make();
    sample.head.pid_space++;
    sample_seal(&sample);
    file_write(own_path(), &sample, sizeof sample, 0600);
    scan_refuse("its process is in another pid namespace");
    sample = sample_make();
    sample.head.pid = 1;
    sample_seal(&sample);
    file_write(own_path(), &sample, sizeof sample, 0600);
    scan_refuse("it names another process than its file does");
    remove_file(own_path());
}

FOLDER_TEST(files_that_others_may_have_made_are_refused)
{
    struct sample sample = sample_make();
    file_write(own_path(), &sample, sizeof sample, 0644);
    scan_refuse("other users may open it");
    file_write(own_path(), &sample, sizeof sample, 0620);
    scan_refuse("other users may open it");
    remove_file(own_path());
    file_write(path_of((uint64_t)getpid(), ".target"), &sample, sizeof sample, 0600);
    assert_int_equal(symlink(path_of((uint64_t)getpid(), ".target").text, own_path().text), 0);
    scan_refuse("a symbolic link");
    remove_file(own_path());
    remove_file(path_of((uint64_t)getpid(), ".target"));
    assert_int_equal(mkfifo(own_path().text, 0600), 0); /* does not block */
    scan_refuse("not a regular file");
    remove_file(own_path());
}

/* As another user, with a process of root's and a file that root cannot have made for it. */
FOLDER_TEST(files_of_other_users_are_counted)
{
    struct sample sample = sample_make();
    int status;
    if (geteuid() != 0)
        return; /* only root can make a file of another user */
    file_write(own_path(), &sample, sizeof sample, 0600);
    assert_int_equal(chmod(folder, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        bool is_right = setgid(65534) == 0 && setuid(65534) == 0 && processes_scan(&processes) &&
                        processes.count == 0 && processes.refused_count == 0 &&
                        processes.foreign == 1;
        _exit(is_right ? 7 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_int_equal(chown(own_path().text, 65534, 65534), 0);
    scan_refuse("it does not belong to the user of its process");
    remove_file(own_path());
}

FOLDER_TEST(other_names_are_left_alone)
{
    static const char *const names[] = { "vmmcache.",     "vmmcache.x.0",
                                         "vmmcache.1",    "vmmcache.1.x",
                                         "vmmcache.-1.0", "vmmcache.1.0.0",
                                         "other.1.0",     "vmmcache.99999999999999999999.0" };
    struct sample sample = sample_make();
    struct path paths[8];
    for (unsigned i = 0; i < 8; i++) {
        (void)snprintf(paths[i].text, sizeof paths[i].text, "%s/%s", folder, names[i]);
        file_write(paths[i], &sample, sizeof sample, 0600);
    }
    assert_true(processes_scan(&processes));
    assert_int_equal(processes.count + processes.refused_count + processes.removed, 0);
    for (unsigned i = 0; i < 8; i++)
        remove_file(paths[i]);
}

TEST(a_folder_that_is_missing_is_an_error)
{
    struct processes missing = { .folder = "/nowhere" };
    assert_false(processes_scan(&missing));
}
