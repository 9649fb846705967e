/* The segment of a process: when it is there, what it says, and that it goes with its process. */
#define _GNU_SOURCE
#include "life/child.h"
#include "support/file_limit_support.h"
#include "support/folder_support.h"
#include "support/made_support.h"

#include "monitor/format.h"
#include "monitor/left.h"
#include "monitor/process.h"
#include "monitor/segment.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ThreadSanitizer calls it. The children of fork() here start threads. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

static char folder[64];

static int folder_make(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/vmm-monitor-XXXXXX");
    return mkdtemp(folder) == NULL || setenv("VMM_MONITOR", folder, 1) != 0;
}

/* Fails if anything is left. */
static int folder_remove(void **state)
{
    (void)state;
    (void)unsetenv("VMM_MONITOR");
    return rmdir(folder);
}

#define MONITOR_TEST(name) TEST_BETWEEN(name, folder_make, folder_remove)

static void path_of(char *path, size_t bytes, pid_t pid, int number)
{
    (void)snprintf(path, bytes, "%s/" MONITOR_PREFIX "%ld.%d", folder, (long)pid, number);
}

static int files_count(void)
{
    return count_entries(folder) - 2;
}

/* The segment, which must be whole. */
static struct monitor_head head_read(pid_t pid)
{
    static uint64_t bytes[MONITOR_MOST_BYTES / sizeof(uint64_t)];
    char path[128];
    struct monitor_head head;
    path_of(path, sizeof path, pid, 0);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    ssize_t count = read(file, bytes, sizeof bytes);
    (void)close(file);
    assert_true(count >= (ssize_t)sizeof head);
    memcpy(&head, bytes, sizeof head);
    assert_true(head.bytes <= (uint64_t)count);
    assert_int_equal(head.checksum, vmm__monitor_checksum((char *)bytes + MONITOR_COVERED,
                                                          head.bytes - MONITOR_COVERED));
    return head;
}

static vmm_cache *cache_create(void)
{
    return cache_with(.driver = VMM_DRIVER_SIM);
}

static void lines_count(void *context, const char *line)
{
    if (strstr(line, "monitor: cannot write") != NULL)
        ++*(int *)context;
}

static vmm_cache *cache_create_logged(int *lines)
{
    vmm_cache *cache =
        cache_with(.driver = VMM_DRIVER_SIM, .log = lines_count, .log_context = lines);
    return cache;
}

static vmm_cache *caches_of_child[2];
static int lines_of_child;

static int threads_count(void)
{
    return count_entries("/proc/self/task") - 2;
}

/* The thread that published the caches before publishes this one. */
static void cache_create_late(void)
{
    vmm_cache *cache = NULL;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    int threads = threads_count();
    if (vmm_create(&config, &cache) != VMM_OK || files_count() != 1 ||
        head_read(getpid()).caches != 1 || threads_count() != threads)
        _exit(4);
    if (vmm_destroy(cache) != VMM_OK)
        _exit(5);
}

static void caches_destroy_late(void)
{
    cache_create_late();
    for (int i = 0; i < 2; i++) {
        if (vmm_destroy(caches_of_child[i]) != VMM_OK)
            _exit(1);
    }
    if (lines_of_child != 0)
        _exit(2);
}

/* Caches may begin and end after the handler of exit() that removes the segment. The first test: handlers of exit() run
 * in reverse order, and the first cache of a process registers that one. */
MONITOR_TEST(caches_can_outlive_the_segment)
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        if (atexit(caches_destroy_late) != 0)
            exit(3);
        for (int i = 0; i < 2; i++)
            caches_of_child[i] = cache_create_logged(&lines_of_child);
        exit(9);
    }
    assert_true(child_ended(child, 9));
    assert_int_equal(files_count(), 0);
}

static void cache_leave_late(void)
{
    caches_of_child[1] = cache_create_logged(&lines_of_child);
}

/* It runs after the handler of the first cache, which has removed the segment. */
MONITOR_TEST(a_cache_that_begins_in_an_exit_handler_leaves_no_segment)
{
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        if (atexit(cache_leave_late) != 0)
            exit(3);
        caches_of_child[0] = cache_create_logged(&lines_of_child);
        exit(9);
    }
    assert_true(child_ended(child, 9));
    assert_int_equal(files_count(), 0);
}

MONITOR_TEST(a_process_has_one_segment_while_it_has_caches)
{
    struct stat about;
    char path[128];
    assert_int_equal(files_count(), 0);
    vmm_cache *first = cache_create();
    path_of(path, sizeof path, getpid(), 0);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    struct monitor_head head = head_read(getpid());
    assert_memory_equal(head.magic, MONITOR_MAGIC, sizeof head.magic);
    assert_int_equal(head.version, MONITOR_VERSION);
    assert_int_equal(head.head_bytes, sizeof(struct monitor_head));
    assert_int_equal(head.cache_bytes, sizeof(struct monitor_cache));
    assert_int_equal(head.pool_bytes, sizeof(struct monitor_pool));
    assert_int_equal(head.lane_bytes, sizeof(struct monitor_lane));
    assert_int_equal(head.caches, 1);
    assert_int_equal(head.pid, getpid());
    assert_int_equal(head.start_ticks, vmm__process_start((uint64_t)getpid()));
    assert_true(head.start_ticks > 0 && head.pid_space > 0);
    assert_string_equal(head.program, "test_monitor");
    assert_string_equal(head.library, vmm_version());
    vmm_cache *second = cache_create();
    assert_int_equal(files_count(), 1);
    assert_int_equal(head_read(getpid()).caches, 2);
    assert_ok(vmm_destroy(first));
    assert_int_equal(head_read(getpid()).caches, 1);
    assert_ok(vmm_destroy(second));
    assert_int_equal(files_count(), 0);
}

MONITOR_TEST(caches_leave_in_any_order)
{
    vmm_cache *caches[4];
    for (int i = 0; i < 4; i++)
        caches[i] = cache_create();
    static const int order[] = { 1, 3, 0, 2 };
    for (int i = 0; i < 3; i++) {
        assert_ok(vmm_destroy(caches[order[i]]));
        assert_int_equal(head_read(getpid()).caches, 3 - i);
    }
    assert_ok(vmm_destroy(caches[order[3]]));
    assert_int_equal(files_count(), 0);
}

MONITOR_TEST(shared_memory_is_the_usual_folder)
{
    char path[128];
    assert_int_equal(setenv("VMM_MONITOR", "1", 1), 0);
    vmm_cache *cache = cache_create();
    assert_int_equal(files_count(), 0);
    (void)snprintf(path, sizeof path, MONITOR_DIRECTORY "/" MONITOR_PREFIX "%ld.0", (long)getpid());
    assert_int_equal(access(path, F_OK), 0);
    assert_ok(vmm_destroy(cache));
    assert_int_equal(access(path, F_OK), -1);
}

MONITOR_TEST(a_thread_publishes_while_the_program_sleeps)
{
    vmm_cache *cache = cache_create();
    uint64_t first = head_read(getpid()).sequence;
    for (int i = 0; i < 100 && head_read(getpid()).sequence < first + 2; i++)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    assert_true(head_read(getpid()).sequence >= first + 2);
    assert_ok(vmm_destroy(cache));
}

MONITOR_TEST(a_name_that_is_taken_is_passed_over)
{
    char path[128];
    path_of(path, sizeof path, getpid(), 0);
    assert_int_equal(symlink("/nowhere", path), 0);
    vmm_cache *cache = cache_create();
    assert_int_equal(files_count(), 2);
    assert_ok(vmm_destroy(cache));
    assert_int_equal(unlink(path), 0);
}

static void file_write(int number, const void *bytes, size_t count)
{
    char path[128];
    path_of(path, sizeof path, getpid(), number);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(file, bytes, count), count);
    (void)close(file);
}

static void files_remove(int count)
{
    char path[128];
    for (int number = 0; number < count; number++) {
        path_of(path, sizeof path, getpid(), number);
        assert_int_equal(unlink(path), 0);
    }
}

/* Only a segment is replaced. */
MONITOR_TEST(other_files_stay)
{
    const struct monitor_head head = { .magic = "vmmCache", .start_ticks = 1 };
    file_write(0, &head, sizeof head);
    file_write(1, MONITOR_MAGIC, MONITOR_MAGIC_BYTES);
    vmm_cache *cache = cache_create();
    assert_int_equal(files_count(), 3);
    assert_ok(vmm_destroy(cache));
    files_remove(2);
}

MONITOR_TEST(names_that_are_all_taken_are_an_error)
{
    vmm_cache *cache = NULL;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    for (int number = 0; number < 16; number++)
        file_write(number, "", 0);
    assert_status(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), ".15: File exists"));
    files_remove(16);
}

/* A segment that a process with this pid would have left. */
static struct monitor_head head_left(pid_t pid)
{
    struct monitor_head head = { .version = MONITOR_VERSION,
                                 .pid = (uint64_t)pid,
                                 .pid_space = vmm__process_pid_space(),
                                 .start_ticks = 1 };
    memcpy(head.magic, MONITOR_MAGIC, sizeof head.magic);
    return head;
}

/* An earlier process with the same pid was killed. */
MONITOR_TEST(a_segment_of_an_earlier_process_is_replaced)
{
    struct monitor_head head = head_left(getpid());
    file_write(0, &head, sizeof head);
    vmm_cache *cache = cache_create();
    assert_int_equal(files_count(), 1);
    assert_int_equal(head_read(getpid()).caches, 1);
    assert_ok(vmm_destroy(cache));
}

/* A child of fork() leaves its parent's segment alone, also at its exit, and has its own. */
MONITOR_TEST(a_child_has_its_own_segment)
{
    vmm_cache *cache = cache_create();
    pid_t child = fork();
    if (child == 0) {
        vmm_cache *own = NULL;
        vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
        bool is_right = vmm_create(&config, &own) == VMM_OK && files_count() == 2 &&
                        head_read(getpid()).pid == (uint64_t)getpid() &&
                        head_read(getpid()).caches == 1;
        exit(is_right ? 7 : 1);
    }
    assert_true(child_ended(child, 7));
    assert_int_equal(files_count(), 1);
    assert_int_equal(head_read(getpid()).caches, 1);
    child = fork();
    if (child == 0)
        exit(8);
    assert_true(child_ended(child, 8));
    assert_int_equal(files_count(), 1);
    assert_ok(vmm_destroy(cache));
}

/* A process that is killed leaves its segment. */
MONITOR_TEST(a_killed_process_leaves_a_segment_that_names_it)
{
    char path[128];
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)cache_create();
        (void)!write(ready[1], "x", 1);
        (void)pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    struct monitor_head head = head_read(child);
    assert_int_equal(head.start_ticks, vmm__process_start((uint64_t)child));
    child_kill(child);
    assert_int_equal(vmm__process_start((uint64_t)child), 0);
    path_of(path, sizeof path, child, 0);
    assert_int_equal(unlink(path), 0);
}

/* ---- What processes left --------------------------------------------------------------------- */

static pid_t child_end_at_once(void)
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)cache_create();
        _exit(0);
    }
    assert_true(child_ended(child, 0));
    return child;
}

MONITOR_TEST(the_next_cache_removes_what_ended_processes_left)
{
    (void)child_end_at_once();
    (void)child_end_at_once(); /* a cache of a child, too */
    assert_int_equal(files_count(), 1);
    vmm_cache *cache = cache_create();
    assert_int_equal(files_count(), 1);
    assert_int_equal(head_read(getpid()).pid, getpid());
    pid_t child = child_end_at_once(); /* our file stays */
    assert_int_equal(files_count(), 2);
    vmm_cache *second = cache_create(); /* only the first cache of a process looks */
    assert_int_equal(files_count(), 2);
    assert_ok(vmm_destroy(second));
    assert_ok(vmm_destroy(cache));
    cache = cache_create();
    assert_int_equal(files_count(), 1);
    assert_int_equal(vmm__process_start((uint64_t)child), 0);
    assert_ok(vmm_destroy(cache));
}

/* Whether the next cache removes a file of so many bytes, and with this mode, of a process. */
static bool is_removed(pid_t pid, const struct monitor_head *head, size_t bytes, mode_t mode)
{
    char path[128];
    path_of(path, sizeof path, pid, 3);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, head, bytes), bytes);
    assert_int_equal(fchmod(file, mode), 0);
    if ((mode & S_ISUID) != 0)
        assert_int_equal(fchown(file, 65534, 65534), 0);
    (void)close(file);
    assert_ok(vmm_destroy(cache_create()));
    bool is_there = access(path, F_OK) == 0;
    assert_int_equal(files_count(), is_there ? 1 : 0);
    if (is_there)
        assert_int_equal(unlink(path), 0);
    return !is_there;
}

MONITOR_TEST(a_file_that_may_be_in_use_stays)
{
    pid_t ended = child_end_at_once();
    struct monitor_head head = head_left(ended);
    assert_true(is_removed(ended, &head, sizeof head, 0600));
    assert_false(is_removed(ended, &head, sizeof head - 1, 0600));
    assert_false(is_removed(ended, &head, sizeof head, 0640));
    assert_false(is_removed(ended, &head, sizeof head, 0602));
    assert_false(is_removed(getppid(), &head, sizeof head, 0600)); /* it names another process */
    head.pid_space++;
    assert_false(is_removed(ended, &head, sizeof head, 0600));
    head = head_left(ended);
    head.version++;
    assert_false(is_removed(ended, &head, sizeof head, 0600));
    head = head_left(ended);
    head.start_ticks = 0;
    assert_false(is_removed(ended, &head, sizeof head, 0600));
    head = head_left(getppid()); /* an earlier process had the pid */
    assert_true(is_removed(getppid(), &head, sizeof head, 0600));
    head.start_ticks = vmm__process_start((uint64_t)getppid());
    assert_false(is_removed(getppid(), &head, sizeof head, 0600));
}

MONITOR_TEST(a_file_of_another_user_stays)
{
    pid_t ended = child_end_at_once();
    struct monitor_head head = head_left(ended);
    assert_true(is_removed(ended, &head, sizeof head, 0600));
    if (geteuid() == 0) /* only root gives files away */
        assert_false(is_removed(ended, &head, sizeof head, 0600 | S_ISUID));
}

MONITOR_TEST(what_is_no_file_stays)
{
    char path[128];
    pid_t ended = child_end_at_once();
    assert_ok(vmm_destroy(cache_create()));
    path_of(path, sizeof path, ended, 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* nothing waits for its other end */
    assert_ok(vmm_destroy(cache_create()));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_ok(vmm_destroy(cache_create()));
    assert_int_equal(unlink(path), 0);
}

/* The cost is bounded: what is too much for one cache is left to the next. */
MONITOR_TEST(many_files_are_removed_in_turns)
{
    enum { FILES = LEFT_LOOKED_AT_MOST + 40 };
    char path[128];
    pid_t ended = child_end_at_once();
    struct monitor_head head = head_left(ended);
    for (int number = 1; number < FILES; number++) {
        path_of(path, sizeof path, ended, number);
        int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_int_equal(write(file, &head, sizeof head), sizeof head);
        (void)close(file);
    }
    assert_int_equal(files_count(), FILES);
    assert_ok(vmm_destroy(cache_create()));
    assert_int_equal(files_count(), FILES - LEFT_LOOKED_AT_MOST);
    assert_ok(vmm_destroy(cache_create()));
    assert_int_equal(files_count(), 0);
}

/* Two may remove a file, and a new process may take its name, at the same moment. */
MONITOR_TEST(a_file_goes_only_by_its_own_name_and_once)
{
    char path[128];
    uint64_t pid = (uint64_t)getpid();
    struct monitor_head head = head_left(getpid());
    file_write(0, &head, sizeof head);
    path_of(path, sizeof path, getpid(), 0);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    int other = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(other, LOCK_EX), 0);
    assert_false(vmm__left_unlink(AT_FDCWD, path, file, pid));
    (void)close(other);
    assert_int_equal(unlink(path), 0);
    assert_false(vmm__left_unlink(AT_FDCWD, path, file, pid));
    file_write(0, &head, sizeof head);
    assert_false(vmm__left_unlink(AT_FDCWD, path, file, pid));
    (void)close(file);
    file = open(path, O_RDONLY | O_CLOEXEC);
    assert_false(vmm__left_unlink(AT_FDCWD, path, file, pid + 1)); /* not what this one left */
    assert_true(vmm__left_unlink(AT_FDCWD, path, file, pid));
    (void)close(file);
    assert_int_equal(files_count(), 0);
}

/* ---- Failures -------------------------------------------------------------------------------- */

MONITOR_TEST(a_folder_that_cannot_be_written_is_an_error)
{
    vmm_cache *cache = NULL;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    assert_int_equal(setenv("VMM_MONITOR", "/nowhere/at/all", 1), 0);
    assert_int_equal(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "VMM_MONITOR: cannot make /nowhere/at/all/vmmcache."));
    assert_int_equal(setenv("VMM_MONITOR", "yes", 1), 0);
    assert_int_equal(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_string_equal(vmm_last_error(), "VMM_MONITOR=yes: not 0, 1 or the path of a folder");
    char name[5000] = "";
    memset(name, '/', sizeof name - 1);
    assert_int_equal(setenv("VMM_MONITOR", name, 1), 0);
    assert_int_equal(vmm_create(&config, &cache), VMM_ERR_INVALID_ARGUMENT);
    assert_string_equal(vmm_last_error(), "VMM_MONITOR: the name is too long");
    assert_int_equal(setenv("VMM_MONITOR", "0", 1), 0);
    assert_ok(vmm_destroy(cache_create()));
    assert_int_equal(files_count(), 0);
}

/* The program goes on, and the log says so once. */
MONITOR_TEST(a_segment_that_cannot_be_written_is_logged_once)
{
    int lines = 0;
    vmm_cache *first = cache_create_logged(&lines);
    file_limit_set(64);
    vmm_cache *second = cache_create();
    file_limit_set(0);
    vmm_cache *third = cache_create();
    file_limit_set(RLIM_INFINITY);
    assert_ok(vmm_destroy(third));
    assert_int_equal(lines, 1);
    assert_int_equal(head_read(getpid()).caches, 2);
    assert_ok(vmm_destroy(second));
    assert_ok(vmm_destroy(first));
}

/* A full device fails a write, and no signal ends the process. */
TEST(a_full_device_fails_a_write)
{
    struct segment segment = { .file = open("/dev/full", O_RDWR | O_CLOEXEC) };
    static uint64_t bytes[1024];
    struct monitor_head *head = (struct monitor_head *)(void *)bytes;
    head->bytes = sizeof bytes;
    assert_true(segment.file >= 0);
    assert_false(vmm__segment_write(&segment, head));
    vmm__segment_forget(&segment);
}

/* Each bit counts. */
TEST(the_checksum_depends_on_each_bit)
{
    uint64_t words[16] = { 0 };
    uint64_t sum = vmm__monitor_checksum(words, sizeof words);
    for (unsigned bit = 0; bit < 16 * 64; bit++) {
        words[bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_int_not_equal(vmm__monitor_checksum(words, sizeof words), sum);
        words[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
}
