/* The record that processes on a device share: slots, processes that die, files that are refused, bells. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "base/fork.h"
#include "base/time.h"
#include "life/child.h"
#include "neighbour/record.h"
#include "support/file_limit_support.h"
#include "support/folder_support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const unsigned char uuid[16] = { 0xAB, 1 };
static char folder[] = "/dev/shm/test_record.XXXXXX";
static char path[256]; /* of the record */

static int folder_setup(void **state)
{
    (void)state;
    (void)strcpy(folder + sizeof folder - 7, "XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/vmmcache-neighbours.%u.ab010000000000000000000000000000",
                   folder, (unsigned)geteuid());
    return 0;
}

/* Whatever the test did, its last process has left nothing. */
static int folder_teardown(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define RECORD_TEST(name) TEST_BETWEEN(name, folder_setup, folder_teardown)

static void join(struct neighbour_record *record)
{
    assert_ok(vmm__neighbour_join(record, folder, uuid, sizeof uuid));
}

static void join_is_refused(const char *part)
{
    struct neighbour_record record;
    assert_status(vmm__neighbour_join(&record, folder, uuid, sizeof uuid), VMM_ERR_UNSUPPORTED);
    if (strstr(vmm_last_error(), part) == NULL)
        print_error("%s\n", vmm_last_error());
    assert_non_null(strstr(vmm_last_error(), part));
}

static void show(struct neighbour_record *record, uint64_t idle_bytes)
{
    struct neighbour_slot slot = { .idle_bytes = idle_bytes, .name = "shown" };
    vmm__neighbour_write(record, &slot);
}

/* Copies a slot if it counts. */
static bool slot_read(const struct neighbour_record *record, unsigned index,
                      struct neighbour_slot *slot)
{
    struct neighbour_slot slots[NEIGHBOUR_SLOTS];
    bool counts = (vmm__neighbours_read(record, slots) >> index & 1) != 0;
    if (counts)
        *slot = slots[index];
    return counts;
}

static bool exists(void)
{
    return access(path, F_OK) == 0;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

RECORD_TEST(the_last_one_removes_the_file)
{
    struct neighbour_record first;
    struct neighbour_record second;
    struct stat about;
    join(&first);
    join(&second);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    vmm__neighbour_leave(&first);
    assert_true(exists());
    vmm__neighbour_leave(&second);
    assert_false(exists());
}

RECORD_TEST(each_sees_what_the_other_shows)
{
    struct neighbour_record first;
    struct neighbour_record second;
    struct neighbour_slot seen;
    join(&first);
    join(&second);
    assert_int_not_equal(first.slot, second.slot);
    assert_false(slot_read(&first, second.slot, &seen)); /* nothing yet */
    show(&second, 42);
    assert_true(slot_read(&first, second.slot, &seen));
    assert_int_equal(seen.idle_bytes, 42);
    assert_int_equal(seen.pid, getpid());
    assert_string_equal(seen.name, "shown");
    assert_false(slot_read(&second, second.slot, &seen)); /* its own */
    vmm__neighbour_leave(&second);
    assert_false(slot_read(&first, 1, &seen));
    vmm__neighbour_leave(&first);
}

RECORD_TEST(there_are_so_many_slots)
{
    static struct neighbour_record all[NEIGHBOUR_SLOTS];
    int descriptors = descriptors_open();
    for (int i = 0; i < NEIGHBOUR_SLOTS; i++)
        join(&all[i]);
    join_is_refused("all slots are taken");
    vmm__neighbour_leave(&all[7]);
    join(&all[7]);
    assert_int_equal(all[7].slot, 7);
    for (int i = 0; i < NEIGHBOUR_SLOTS; i++)
        vmm__neighbour_leave(&all[i]);
    assert_int_equal(descriptors_open(), descriptors);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static int pipe_ends[2];
static int stop_ends[2];

static void say(char what)
{
    CHILD_REQUIRES(write(pipe_ends[1], &what, 1) == 1);
}

static char hear(void)
{
    char what = 0;
    (void)alarm(CHILD_SECONDS);
    assert_int_equal(read(pipe_ends[0], &what, 1), 1);
    return what;
}

static void joins_and_stays(void *context)
{
    struct neighbour_record *record = context;
    CHILD_REQUIRES(vmm__neighbour_join(record, folder, uuid, sizeof uuid) == VMM_OK);
    show(record, 7);
    say('j');
    for (;;)
        (void)pause();
}

static pid_t joined_child(void)
{
    static struct neighbour_record record;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = child_begun(joins_and_stays, &record);
    assert_int_equal(hear(), 'j');
    return child;
}

static void joined_kill(pid_t child)
{
    child_kill(child);
    assert_int_equal(close(pipe_ends[0]) | close(pipe_ends[1]), 0);
}

RECORD_TEST(the_slot_of_a_killed_process_is_free)
{
    struct neighbour_record record;
    struct neighbour_slot seen;
    pid_t child = joined_child();
    join(&record);
    assert_int_equal(record.slot, 1);
    assert_true(slot_read(&record, 0, &seen));
    assert_int_equal(seen.pid, child);
    joined_kill(child);
    assert_false(slot_read(&record, 0, &seen));
    struct neighbour_record next;
    join(&next);
    assert_int_equal(next.slot, 0);
    vmm__neighbour_leave(&next);
    vmm__neighbour_leave(&record);
}

RECORD_TEST(a_file_that_killed_processes_left_serves_again)
{
    struct neighbour_record record;
    joined_kill(joined_child());
    assert_true(exists());
    join(&record);
    assert_int_equal(record.slot, 0);
    vmm__neighbour_leave(&record);
}

/* A child that ends with the pipe's other end. */
static void stays_in_child(void)
{
    char what;
    if (fork() == 0) {
        say('f');
        (void)!read(stop_ends[0], &what, 1);
        _exit(0);
    }
}

static void forks_and_stays(void *context)
{
    struct neighbour_record *record = context;
    CHILD_REQUIRES(vmm__neighbour_join(record, folder, uuid, sizeof uuid) == VMM_OK);
    show(record, 7);
    stays_in_child();
    for (;;)
        (void)pause();
}

/* The grandchild lives on, but has no slot. */
RECORD_TEST(a_child_of_fork_keeps_no_slot)
{
    struct neighbour_record record;
    struct neighbour_slot seen;
    assert_int_equal(pipe(pipe_ends) | pipe(stop_ends), 0);
    pid_t child = child_begun(forks_and_stays, &record);
    assert_int_equal(hear(), 'f');
    join(&record);
    assert_true(slot_read(&record, 0, &seen));
    joined_kill(child);
    assert_false(slot_read(&record, 0, &seen));
    vmm__neighbour_leave(&record);
    assert_false(exists());
    assert_int_equal(write(stop_ends[1], "s", 1), 1);
    assert_int_equal(close(stop_ends[0]) | close(stop_ends[1]), 0);
}

static void joins_and_exits(void *context)
{
    static struct neighbour_record records[2];
    (void)context;
    CHILD_REQUIRES(vmm__neighbour_join(&records[0], folder, uuid, sizeof uuid) == VMM_OK);
    CHILD_REQUIRES(vmm__neighbour_join(&records[1], folder, uuid, sizeof uuid) == VMM_OK);
    exit(0);
}

RECORD_TEST(exit_leaves)
{
    child_runs(joins_and_exits, NULL);
    assert_false(exists());
}

/* A process that is stopped while it joins makes others wait, but not for ever. */
RECORD_TEST(a_stopped_process_does_not_stop_others)
{
    struct neighbour_record record;
    join(&record);
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct flock turn = { .l_type = F_WRLCK, .l_start = NEIGHBOUR_SLOTS, .l_len = 1 };
    assert_int_equal(fcntl(file, F_OFD_SETLK, &turn), 0);
    uint64_t begin_ns = vmm__time_ns();
    join_is_refused("does not end");
    assert_true(vmm__time_ns() - begin_ns > 50000000);
    assert_int_equal(close(file), 0);
    vmm__neighbour_leave(&record);
}

/* ---- Files that are refused -------------------------------------------------------------------- */

static void file_make(const void *bytes, size_t count, mode_t mode)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(file, bytes, count), count);
    assert_int_equal(fchmod(file, mode) | close(file), 0);
}

static struct neighbour_file image(void)
{
    struct neighbour_file file = { .head = { .magic = NEIGHBOUR_MAGIC,
                                             .version = NEIGHBOUR_VERSION,
                                             .slot_bytes = sizeof(struct neighbour_slot),
                                             .slots = NEIGHBOUR_SLOTS } };
    return file;
}

static void image_is_refused(const struct neighbour_file *file, size_t bytes, const char *part)
{
    file_make(file, bytes, 0600);
    join_is_refused(part);
    assert_int_equal(unlink(path), 0);
}

RECORD_TEST(other_files_are_refused)
{
    static struct neighbour_file file;
    file = image();
    file.head.version++;
    image_is_refused(&file, sizeof file, "another version");
    file = image();
    file.head.slots--;
    image_is_refused(&file, sizeof file, "damaged");
    file = image();
    file.head.slot_bytes++;
    image_is_refused(&file, sizeof file, "damaged");
    file = image();
    image_is_refused(&file, sizeof file - 1, "damaged");
    file.head.magic[3] = 'X';
    image_is_refused(&file, sizeof file, "not a record");
    file = image();
    file_make(&file, sizeof file, 0644);
    join_is_refused("another user");
    assert_int_equal(unlink(path), 0);
}

RECORD_TEST(what_is_no_file_is_refused)
{
    assert_int_equal(symlink("/dev/null", path), 0);
    join_is_refused("symbolic");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    join_is_refused("not a file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    join_is_refused("directory");
    assert_int_equal(rmdir(path), 0);
    (void)strcpy(folder + sizeof folder - 7, "absent");
    join_is_refused("No such file");
    (void)sscanf(path, "/dev/shm/test_record.%6s", folder + sizeof folder - 7);
}

/* After chdir() its name would be that of another file. */
RECORD_TEST(a_folder_with_a_long_name_is_refused)
{
    static char name[NEIGHBOUR_FOLDER_MOST + 2];
    struct neighbour_record record;
    memset(name, '/', sizeof name - 1);
    assert_status(vmm__neighbour_join(&record, name, uuid, sizeof uuid), VMM_ERR_UNSUPPORTED);
    assert_non_null(strstr(vmm_last_error(), "too long"));
}

RECORD_TEST(a_relative_folder_is_refused)
{
    struct neighbour_record record;
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    vmm_status status = vmm__neighbour_join(&record, ".", uuid, sizeof uuid);
    assert_int_equal(chdir(before), 0);
    assert_status(status, VMM_ERR_UNSUPPORTED);
    assert_string_equal(vmm_last_error(), "VMM_NEIGHBOURS_DIR=.: does not begin with /");
}

/* ---- File systems that refuse --------------------------------------------------------------------- */

/* The linker leads pwrite() of the library here. One call writes only so many bytes, or fails without any. */
static unsigned full_after; /* so many calls succeed before; 0: all do */
static size_t full_bytes;
static bool forks; /* in the next call */

/* The child of a fork() in the middle of a join: the file is not open there. */
static void fork_expect_closed(int file)
{
    int status;
    forks = false;
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(file, F_GETFD) == -1 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

ssize_t __real_pwrite(int file, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t offset);

ssize_t __wrap_pwrite(int file, const void *bytes, size_t count, off_t offset)
{
    if (forks)
        fork_expect_closed(file);
    if (full_after == 0 || --full_after > 0)
        return __real_pwrite(file, bytes, count, offset);
    if (full_bytes > 0)
        return __real_pwrite(file, bytes, full_bytes, offset);
    errno = ENOSPC;
    return -1;
}

static void full_is_refused(unsigned call, size_t bytes)
{
    full_after = call;
    full_bytes = bytes;
    errno = EEXIST; /* what an earlier call left */
    join_is_refused("No space left");
    assert_int_equal(full_after, 0);
}

RECORD_TEST(a_child_of_a_fork_beside_a_join_keeps_no_slot)
{
    struct neighbour_record record;
    forks = true;
    join(&record);
    assert_false(forks);
    vmm__neighbour_leave(&record);
}

/* Neither its head nor a slot has room: no process has it, so none would remove it later. */
RECORD_TEST(a_full_file_system_keeps_no_file)
{
    for (unsigned call = 1; call <= 2; call++) {
        full_is_refused(call, 0);
        assert_false(exists());
        full_is_refused(call, 3);
        assert_false(exists());
    }
}

RECORD_TEST(a_full_file_system_takes_no_file_from_others)
{
    struct neighbour_record record;
    join(&record);
    full_is_refused(1, 0); /* the slot: the file has a head */
    assert_true(exists());
    vmm__neighbour_leave(&record);
}

static void joins_with_short_files(void *context)
{
    struct neighbour_record *record = context;
    file_limit_set(sizeof(struct neighbour_file) - 1);
    CHILD_REQUIRES(vmm__neighbour_join(record, folder, uuid, sizeof uuid) == VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(strstr(vmm_last_error(), "RLIMIT_FSIZE") != NULL);
    file_limit_set(RLIM_INFINITY);
}

/* It would end the process. */
RECORD_TEST(a_limit_of_files_is_no_signal)
{
    static struct neighbour_record record;
    child_runs(joins_with_short_files, &record);
    assert_false(exists());
    join(&record);
    child_runs(joins_with_short_files, &record); /* a file that has its length */
    vmm__neighbour_leave(&record);
}

static void writes_with_short_files(void *context)
{
    struct neighbour_record *record = context;
    CHILD_REQUIRES(vmm__neighbour_join(record, folder, uuid, sizeof uuid) == VMM_OK);
    file_limit_set(0);
    show(record, 5);
    vmm__neighbour_ring(record, BELL_ASKED);
    vmm__neighbour_leave(record);
    file_limit_set(RLIM_INFINITY);
}

RECORD_TEST(a_limit_that_comes_later_is_no_signal)
{
    static struct neighbour_record record;
    child_runs(writes_with_short_files, &record);
    assert_false(exists());
}

/* Its maker was killed before it was whole. */
RECORD_TEST(an_unfinished_file_is_finished)
{
    static const char zeros[sizeof(struct neighbour_file)];
    struct neighbour_record record;
    file_make(zeros, 0, 0600);
    join(&record);
    vmm__neighbour_leave(&record);
    file_make(zeros, sizeof zeros, 0600);
    join(&record);
    vmm__neighbour_leave(&record);
}

/* ---- Contents that others wrote ---------------------------------------------------------------- */

RECORD_TEST(a_torn_slot_is_no_slot)
{
    struct neighbour_record records[2];
    struct neighbour_slot seen;
    join(&records[0]);
    join(&records[1]);
    show(&records[1], 9);
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t at = (off_t)(offsetof(struct neighbour_file, slots) + sizeof seen +
                       offsetof(struct neighbour_slot, idle_bytes));
    assert_int_equal(pwrite(file, "x", 1, at), 1);
    assert_int_equal(close(file), 0);
    assert_false(slot_read(&records[0], 1, &seen));
    show(&records[1], 9);
    assert_true(slot_read(&records[0], 1, &seen));
    vmm__neighbour_leave(&records[0]);
    vmm__neighbour_leave(&records[1]);
}

/* No call faults, and waits take their time. */
RECORD_TEST(a_cut_file_is_survived)
{
    struct neighbour_record records[2];
    struct neighbour_slot seen;
    join(&records[0]);
    join(&records[1]);
    assert_int_equal(truncate(path, 0), 0);
    assert_false(slot_read(&records[0], 1, &seen));
    vmm__neighbour_ring(&records[0], BELL_ASKED);
    assert_int_equal(truncate(path, 0), 0);
    uint64_t begin_ns = vmm__time_ns();
    vmm__neighbour_wait(&records[0], BELL_ASKED, vmm__neighbour_bell(&records[0], BELL_ASKED),
                        20000000);
    assert_true(vmm__time_ns() - begin_ns > 15000000);
    vmm__neighbour_leave(&records[0]);
    vmm__neighbour_leave(&records[1]);
}

enum { IMAGES = IS_SLOW_BUILD ? 200000 : 1000000 };

/* Whatever the file holds, a slot is refused or a text and numbers. */
RECORD_TEST(random_images_are_survived)
{
    struct neighbour_record records[2];
    struct neighbour_slot seen;
    union {
        struct neighbour_slot slot;
        uint64_t words[sizeof(struct neighbour_slot) / sizeof(uint64_t)];
    } random;
    uint64_t state = 88172645463325252U;
    unsigned taken = 0;
    join(&records[0]);
    join(&records[1]);
    int file = open(path, O_RDWR | O_CLOEXEC);
    off_t at = (off_t)(offsetof(struct neighbour_file, slots) + sizeof seen);
    for (unsigned round = 0; round < IMAGES; round++) {
        for (size_t i = 0; i < sizeof random / sizeof state; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            random.words[i] = state;
        }
        if (round % 2 == 0)
            random.slot.checksum = vmm__monitor_checksum((const char *)&random + sizeof state,
                                                         sizeof random - sizeof state);
        assert_int_equal(pwrite(file, &random, sizeof random, at), sizeof random);
        bool is_read = slot_read(&records[0], 1, &seen);
        assert_int_equal(is_read, round % 2 == 0);
        taken += is_read;
        assert_true(memchr(seen.name, '\0', sizeof seen.name) != NULL || !is_read);
    }
    assert_int_equal(taken, IMAGES / 2);
    assert_int_equal(close(file), 0);
    vmm__neighbour_leave(&records[0]);
    vmm__neighbour_leave(&records[1]);
}

/* ---- Bells ------------------------------------------------------------------------------------- */

static void waits_for_the_bell(void *context)
{
    struct neighbour_record *record = context;
    CHILD_REQUIRES(vmm__neighbour_join(record, folder, uuid, sizeof uuid) == VMM_OK);
    uint32_t state = vmm__neighbour_bell(record, BELL_ASKED);
    say('w');
    uint64_t begin_ns = vmm__time_ns();
    while (vmm__neighbour_bell(record, BELL_ASKED) == state)
        vmm__neighbour_wait(record, BELL_ASKED, state, 20000000000);
    CHILD_REQUIRES(vmm__time_ns() - begin_ns < 10000000000);
    vmm__neighbour_leave(record);
}

RECORD_TEST(a_bell_wakes_another_process)
{
    static struct neighbour_record own;
    static struct neighbour_record others;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = child_begun(waits_for_the_bell, &others);
    assert_int_equal(hear(), 'w');
    join(&own);
    (void)usleep(20000);
    vmm__neighbour_ring(&own, BELL_GIVEN); /* the other bell */
    vmm__neighbour_ring(&own, BELL_ASKED);
    assert_true(child_ended(child, 0));
    vmm__neighbour_leave(&own);
    assert_int_equal(close(pipe_ends[0]) | close(pipe_ends[1]), 0);
}
