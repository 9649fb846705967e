/* The segment of a process: when it is there, what it says, and that it goes with its process. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "monitor/format.h"
#include "monitor/process.h"
#include "monitor/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

static unsigned files_count(void)
{
    unsigned count = 0;
    DIR *open = opendir(folder);
    assert_non_null(open);
    while (readdir(open) != NULL)
        count++;
    (void)closedir(open);
    return count - 2;
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
    vmm_cache *cache = NULL;
    vmm_config config = CONFIG(.driver = VMM_DRIVER_SIM);
    assert_ok(vmm_create(&config, &cache));
    return cache;
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

/* An earlier process with the same pid was killed. */
MONITOR_TEST(a_segment_of_an_earlier_process_is_replaced)
{
    struct monitor_head head = { .pid = (uint64_t)getpid(), .start_ticks = 1 };
    char path[128];
    memcpy(head.magic, MONITOR_MAGIC, sizeof head.magic);
    path_of(path, sizeof path, getpid(), 0);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(file, &head, sizeof head), sizeof head);
    (void)close(file);
    vmm_cache *cache = cache_create();
    assert_int_equal(files_count(), 1);
    assert_int_equal(head_read(getpid()).caches, 1);
    assert_ok(vmm_destroy(cache));
}

static void child_expect(pid_t child, int code)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
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
    child_expect(child, 7);
    assert_int_equal(files_count(), 1);
    assert_int_equal(head_read(getpid()).caches, 1);
    child = fork();
    if (child == 0)
        exit(8);
    child_expect(child, 8);
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
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(vmm__process_start((uint64_t)child), 0);
    path_of(path, sizeof path, child, 0);
    assert_int_equal(unlink(path), 0);
}

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
    assert_int_equal(setenv("VMM_MONITOR", "0", 1), 0);
    assert_ok(vmm_destroy(cache_create()));
    assert_int_equal(files_count(), 0);
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
