/*
 * Memory of PyTorch's allocator that processes share, on the host driver: contents both ways, every order in which the
 * two end, and what a hostile peer may send.
 *
 * Tests run this program once more, as `test_torch_share ROLE ARGUMENT...`: see roles.
 */
#define _GNU_SOURCE
#include "base/hostmem.h"
#include "life/child.h"
#include "torch/share_steps.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { HANDLE_BYTES = sizeof(struct share_handle), HEX_BYTES = 2 * HANDLE_BYTES + 1 };
enum { SENT_BYTE = 0x5a, ANSWER_BYTE = 0x3c };
enum { CROWD = 1000 };

/* ---- Steps --------------------------------------------------------------------------------- */

static void hex_write(const struct share_handle *handle, char hex[HEX_BYTES])
{
    for (size_t i = 0; i < sizeof *handle; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)handle)[i]);
}

static struct share_handle hex_read(const char *hex)
{
    struct share_handle handle;
    for (size_t i = 0; i < sizeof handle; i++) {
        const char digits[3] = { hex[2 * i], hex[2 * i + 1], '\0' };
        ((unsigned char *)&handle)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return handle;
}

/* ---- Other processes ------------------------------------------------------------------------- */

struct other {
    pid_t pid;
    int says; /* its output */
    int asks; /* its input */
};

static struct other other_begin(const char *role, const char *first, const char *second)
{
    int out[2];
    int in[2];
    assert_int_equal(pipe(out) | pipe(in), 0);
    struct other other = { .pid = fork(), .says = out[0], .asks = in[1] };
    if (other.pid == 0) {
        (void)dup2(out[1], STDOUT_FILENO);
        (void)dup2(in[0], STDIN_FILENO);
        for (int descriptor = 3; descriptor < 256; descriptor++)
            (void)close(descriptor);
        (void)execl("/proc/self/exe", "test_torch_share", role, first, second, (char *)NULL);
        _exit(127);
    }
    (void)close(out[1]);
    (void)close(in[0]);
    return other;
}

/* Waits for what the other process says: `count` bytes. */
static void other_hears(const struct other *other, char *text, size_t count)
{
    while (count > 0) {
        ssize_t got = read(other->says, text, count);
        assert_true(got > 0);
        text += got;
        count -= (size_t)got;
    }
}

static void other_end(const struct other *other)
{
    (void)close(other->asks);
    assert_true(child_ended(other->pid, 0));
    (void)close(other->says);
}

static void input_wait(void)
{
    char byte;
    CHILD_REQUIRES(read(STDIN_FILENO, &byte, 1) == 0);
}

static void hex_say(const struct share_handle *handle)
{
    char hex[HEX_BYTES];
    hex_write(handle, hex);
    CHILD_REQUIRES(write(STDOUT_FILENO, hex, HEX_BYTES) == HEX_BYTES);
}

/* opener HANDLE BYTES: opens a block, checks and changes its contents. */
static void opener_run(char **arguments)
{
    struct share_handle handle = hex_read(arguments[0]);
    size_t bytes = strtoull(arguments[1], NULL, 10);
    torch_open(VMM_DEFAULT);
    (void)block_make(512, 0); /* the cache exists */
    int before = descriptors_open();
    for (int round = 0; round < 3; round++) {
        unsigned char *opened = handle_open(&handle);
        CHILD_REQUIRES(bytes_are(opened, bytes, round == 0 ? SENT_BYTE : ANSWER_BYTE));
        memset(opened, ANSWER_BYTE, bytes);
        CHILD_REQUIRES(torch->share_close(opened) == VMM_OK);
        CHILD_REQUIRES(descriptors_open() == before);
    }
}

/* sharer: shares a block, says its handle, and ends when its input does. */
static void sharer_run(char **arguments)
{
    (void)arguments;
    torch_open(VMM_DEFAULT);
    struct share_handle handle = handle_of(block_make(3 * MIB, SENT_BYTE), 0);
    hex_say(&handle);
    input_wait();
}

/* parent: the same, but a child that it has forked lives on. */
static void parent_run(char **arguments)
{
    (void)arguments;
    torch_open(VMM_DEFAULT);
    struct share_handle handle = handle_of(block_make(3 * MIB, SENT_BYTE), 0);
    if (fork() == 0) {
        (void)close(STDOUT_FILENO);
        input_wait();
        child_leave();
    }
    hex_say(&handle);
    child_leave();
}

/* crowd SOCKET: connects many times and says nothing. */
static void crowd_run(char **arguments)
{
    char name[SOCKET_NAME_BYTES] = "";
    (void)snprintf(name, sizeof name, "%s", arguments[0]);
    for (int i = 0; i < CROWD; i++) {
        int socket;
        CHILD_REQUIRES(vmm__share_connect(name, &socket) == VMM_OK);
    }
    CHILD_REQUIRES(write(STDOUT_FILENO, "!", 1) == 1);
    input_wait();
}

/* off: the settings turn sharing off. */
static void off_run(char **arguments)
{
    struct share_handle handle;
    size_t bytes = sizeof handle;
    uint64_t offset;
    (void)arguments;
    torch_open(VMM_OFF);
    CHILD_REQUIRES(torch->share(block_make(MIB, 0), &handle, &bytes, &offset) ==
                   VMM_ERR_UNSUPPORTED);
    CHILD_REQUIRES(strstr(vmm_last_error(), "ipc") != NULL);
}

static const struct {
    const char *name;
    void (*run)(char **arguments);
} roles[] = { { "opener", opener_run },
              { "sharer", sharer_run },
              { "parent", parent_run },
              { "crowd", crowd_run },
              { "off", off_run } };

/* ---- Two processes ---------------------------------------------------------------------------- */

static void block_travels(size_t bytes)
{
    char hex[HEX_BYTES];
    char count[24];
    unsigned char *block = block_make(bytes, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    hex_write(&handle, hex);
    (void)snprintf(count, sizeof count, "%zu", bytes);
    struct other other = other_begin("opener", hex, count);
    other_end(&other);
    assert_true(bytes_are(block, bytes, ANSWER_BYTE));
    block_drop(block);
}

TEST(another_process_reads_and_writes_a_block)
{
    static const size_t sizes[] = { 512, 5000, 700000, 5 * MIB, 20 * MIB };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *neighbour = block_make(sizes[i], SENT_BYTE + 1);
        block_travels(sizes[i]);
        assert_true(bytes_are(neighbour, sizes[i], SENT_BYTE + 1));
        block_drop(neighbour);
    }
}

TEST(memory_outlives_the_process_that_shared_it)
{
    char hex[HEX_BYTES];
    struct other other = other_begin("sharer", NULL, NULL);
    other_hears(&other, hex, sizeof hex);
    struct share_handle handle = hex_read(hex);
    unsigned char *opened = handle_open(&handle);
    int before = descriptors_open();
    other_end(&other);
    assert_true(bytes_are(opened, 3 * MIB, SENT_BYTE));
    assert_status(open_status(&handle, sizeof handle), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "has ended"));
    descriptors_are_closed(before - 2); /* the pipes */
    assert_true(bytes_are(opened, 3 * MIB, SENT_BYTE));
    assert_ok(torch->share_close(opened));
    all_is_freed();
}

TEST(a_forked_child_does_not_keep_the_socket)
{
    char hex[HEX_BYTES];
    struct other other = other_begin("parent", NULL, NULL);
    other_hears(&other, hex, sizeof hex);
    assert_true(child_ended(other.pid, 0));
    struct share_handle handle = hex_read(hex);
    assert_status(open_status(&handle, sizeof handle), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "has ended"));
    (void)close(other.asks);
    (void)close(other.says);
}

static void forked_calls(void *context)
{
    const struct share_handle *handle = context;
    struct share_handle made;
    size_t bytes = sizeof made;
    uint64_t offset;
    void *opened;
    CHILD_REQUIRES(torch->share(handle, &made, &bytes, &offset) == VMM_ERR_FORKED);
    CHILD_REQUIRES(torch->share_open(handle, sizeof *handle, 0, &opened) == VMM_ERR_FORKED);
    CHILD_REQUIRES(torch->share_close(&made) == VMM_OK);
}

TEST(a_forked_child_is_refused)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    child_runs(forked_calls, &handle);
    unsigned char *opened = handle_open(&handle); /* here all goes on */
    assert_ok(torch->share_close(opened));
    block_drop(block);
}

TEST(settings_turn_it_off)
{
    struct other other = other_begin("off", NULL, NULL);
    other_end(&other);
}

/* ---- Handles --------------------------------------------------------------------------------- */

TEST(a_handle_is_the_same_until_the_block_is_freed)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    struct share_handle again = handle_of(block + 5000, 5000);
    assert_memory_equal(&handle, &again, sizeof handle);
    block_drop(block);
    assert_status(open_status(&handle, sizeof handle), VMM_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(vmm_last_error(), "has freed this memory"));
    unsigned char *next = block_make(MIB, SENT_BYTE);
    assert_ptr_equal(next, block);
    again = handle_of(next, 0);
    assert_memory_not_equal(&handle, &again, sizeof handle);
    block_drop(next);
    size_t bytes = sizeof handle;
    uint64_t offset;
    assert_status(torch->share(next, &handle, &bytes, &offset), VMM_ERR_UNKNOWN_POINTER);
    bytes--;
    assert_status(torch->share(next, &handle, &bytes, &offset), VMM_ERR_INVALID_ARGUMENT);
}

/* Also after PyTorch's fashion: the opener closes later than the exporter frees. */
TEST(an_opened_block_that_was_freed_is_no_longer_the_exporters)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    unsigned char *opened = handle_open(&handle);
    block_drop(block);
    assert_true(bytes_are(opened, MIB, SENT_BYTE)); /* nothing was written there since */
    assert_ok(torch->share_close(opened));
    assert_status(torch->share_close(opened), VMM_ERR_UNKNOWN_POINTER);
    all_is_freed();
    assert_int_equal(stats_of().allocations.current, 0);
}

TEST(forged_handles_are_refused)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    const struct share_handle good = handle_of(block, 0);
    unsigned char *opened = handle_open(&good);
    assert_ok(torch->share_close(opened));
    int before = descriptors_open();
    for (size_t i = 0; i < sizeof good * 8; i++) {
        struct share_handle forged = good;
        ((unsigned char *)&forged)[i / 8] ^= (unsigned char)(1 << i % 8);
        assert_status(open_status(&forged, sizeof forged), VMM_ERR_INVALID_ARGUMENT);
    }
    for (size_t bytes = 0; bytes < sizeof good; bytes++)
        assert_status(open_status(&good, bytes), VMM_ERR_INVALID_ARGUMENT);
    char longer[sizeof good + 1] = "";
    memcpy(longer, &good, sizeof good);
    assert_status(open_status(longer, sizeof longer), VMM_ERR_INVALID_ARGUMENT);
    descriptors_are_closed(before);
    all_is_freed();
    block_drop(block);
}

TEST(wrong_addresses_are_refused)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    struct share_handle again;
    size_t bytes = sizeof again;
    uint64_t offset;
    unsigned char *opened = handle_open(&handle);
    assert_status(torch->share_close(block), VMM_ERR_UNKNOWN_POINTER);
    assert_status(torch->share_close(opened + 512), VMM_ERR_UNKNOWN_POINTER);
    assert_status(torch->share_close(&offset), VMM_ERR_UNKNOWN_POINTER);
    assert_int_not_equal(torch->share(opened, &again, &bytes, &offset), VMM_OK);
    assert_status(torch->share_open(&handle, sizeof handle, 99, (void **)&block),
                  VMM_ERR_NO_DEVICE);
    assert_ok(torch->share_close(opened));
    block_drop(block);
}

/* ---- Figures --------------------------------------------------------------------------------- */

TEST(opened_memory_has_no_part_in_reports)
{
    all_is_freed();
    unsigned char *block = block_make(3 * MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    const vmm_torch_snapshot *snapshot;
    vmm_torch_stats kinds[2] = { { .struct_size = sizeof *kinds },
                                 { .struct_size = sizeof *kinds } };
    assert_ok(vmm_torch_history_start(1000, NULL, 0));
    assert_ok(vmm_torch_stats_get(0, &kinds[0]));
    assert_ok(vmm_torch_snapshot_take(0, &snapshot));
    uint64_t segments = snapshot->segment_count;
    uint64_t events = snapshot->event_count;
    vmm_torch_snapshot_drop(snapshot);
    unsigned char *opened = handle_open(&handle);
    assert_true(stats_of().imported_bytes >= 3 * MIB);
    assert_ok(vmm_torch_stats_get(0, &kinds[1]));
    assert_memory_equal(&kinds[0], &kinds[1], sizeof *kinds);
    assert_ok(vmm_torch_snapshot_take(0, &snapshot));
    assert_int_equal(snapshot->segment_count, segments);
    assert_int_equal(snapshot->event_count, events + 1); /* of the first snapshot, or this one */
    vmm_torch_snapshot_drop(snapshot);
    assert_ok(torch->share_close(opened));
    assert_ok(vmm_torch_stats_get(0, &kinds[1]));
    assert_memory_equal(&kinds[0], &kinds[1], sizeof *kinds);
    assert_ok(vmm_torch_history_stop());
    block_drop(block);
}

/* Far more blocks than a process may have files. */
TEST(thousands_of_blocks_need_few_descriptors)
{
    enum { BLOCKS = 3000 };
    static unsigned char *blocks[BLOCKS];
    static unsigned char *opened[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = block_make(1024, i % 251);
    int before = descriptors_open();
    for (int i = 0; i < BLOCKS; i++) {
        struct share_handle handle = handle_of(blocks[i], 0);
        opened[i] =
            i % 10 == 0 ? handle_open(&handle) : NULL; /* each takes a file of the host driver */
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (opened[i] == NULL)
            continue;
        assert_true(bytes_are(opened[i], 1024, i % 251));
        assert_ok(torch->share_close(opened[i]));
    }
    assert_true(descriptors_open() < before + 10);
    for (int i = 0; i < BLOCKS; i++)
        block_drop(blocks[i]);
    all_is_freed();
}

TEST(without_host_memory_nothing_is_left)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle;
    for (uint64_t fails = 1; fails < 30; fails++) {
        size_t bytes = sizeof handle;
        uint64_t offset;
        void *opened;
        int before = descriptors_open();
        (void)vmm__host_fail_at(fails);
        vmm_status status = torch->share(block, &handle, &bytes, &offset);
        (void)vmm__host_fail_at(0);
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
        if (status != VMM_OK) {
            descriptors_are_closed(before);
            continue;
        }
        before = descriptors_open();
        (void)vmm__host_fail_at(fails);
        status = torch->share_open(&handle, sizeof handle, 0, &opened);
        (void)vmm__host_fail_at(0);
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
        if (status == VMM_OK)
            assert_ok(torch->share_close(opened));
        descriptors_are_closed(before);
    }
    all_is_freed();
    block_drop(block);
}

/* ---- Peers that are not the library ------------------------------------------------------------ */

static int peer_connect(const struct share_handle *handle)
{
    int socket;
    assert_ok(vmm__share_connect(handle->socket, &socket));
    return socket;
}

static struct share_request request_of(const struct share_handle *handle)
{
    return (struct share_request){ .magic = SHARE_MAGIC,
                                   .version = SHARE_VERSION,
                                   .token = handle->token };
}

static void answer_is(int socket, enum share_result wanted)
{
    struct share_answer answer;
    char byte;
    assert_ok(vmm__share_bytes_receive(socket, &answer, sizeof answer));
    assert_int_equal(answer.magic, SHARE_MAGIC);
    assert_int_equal(answer.result, wanted);
    assert_int_equal(answer.zero, 0);
    if (wanted != SHARE_GRANTED)
        assert_int_equal(recv(socket, &byte, 1, 0), 0); /* no more comes */
    (void)close(socket);
}

TEST(requests_are_checked)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    const struct share_request good = request_of(&handle);
    int before = descriptors_open();
    for (size_t i = 0; i < sizeof good; i++) {
        struct share_request request = good;
        ((unsigned char *)&request)[i] ^= 0x80;
        int socket = peer_connect(&handle);
        assert_ok(vmm__share_bytes_send(socket, &request, sizeof request));
        bool is_token = i >= offsetof(struct share_request, token);
        answer_is(socket, is_token ? SHARE_UNKNOWN : SHARE_REFUSED);
    }
    int slow = peer_connect(&handle);
    for (size_t i = 0; i < sizeof good; i++) {
        assert_ok(vmm__share_bytes_send(slow, (const char *)&good + i, 1));
        (void)poll(NULL, 0, 1);
    }
    answer_is(slow, SHARE_GRANTED);
    for (size_t bytes = 0; bytes <= sizeof good; bytes += sizeof good / 2) {
        int quick = peer_connect(&handle); /* it does not wait for the answer */
        assert_ok(vmm__share_bytes_send(quick, &good, bytes));
        (void)close(quick);
    }
    descriptors_are_closed(before);
    block_drop(block);
}

TEST(a_silent_peer_is_closed_and_delays_no_other)
{
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    char byte;
    int silent = peer_connect(&handle);
    int half = peer_connect(&handle);
    const struct timeval longer = { .tv_sec = 3 * PEER_SECONDS };
    assert_int_equal(setsockopt(silent, SOL_SOCKET, SO_RCVTIMEO, &longer, sizeof longer), 0);
    assert_ok(vmm__share_bytes_send(half, &handle, 10));
    unsigned char *opened = handle_open(&handle);
    assert_ok(torch->share_close(opened));
    assert_int_equal(recv(silent, &byte, 1, MSG_DONTWAIT), -1); /* still open */
    assert_int_equal(recv(silent, &byte, 1, 0), 0);
    (void)close(silent);
    (void)close(half);
    block_drop(block);
}

TEST(a_crowd_of_silent_peers_makes_room)
{
    char said;
    unsigned char *block = block_make(MIB, SENT_BYTE);
    struct share_handle handle = handle_of(block, 0);
    struct other other = other_begin("crowd", handle.socket, NULL);
    other_hears(&other, &said, 1);
    for (int i = 0; i < 10; i++) {
        unsigned char *opened = handle_open(&handle);
        assert_ok(torch->share_close(opened));
    }
    other_end(&other);
    block_drop(block);
}

/* ---- Threads ------------------------------------------------------------------------------- */

enum { THREADS = 4 };

static void *sharer_thread(void *context)
{
    size_t bytes = *(const size_t *)context;
    for (int i = 0; i < (IS_SLOW_BUILD ? 30 : 200); i++) {
        unsigned char *block = block_make(bytes, i % 251);
        struct share_handle handle = handle_of(block, 0);
        unsigned char *opened = handle_open(&handle);
        CHILD_REQUIRES(bytes_are(opened, bytes, i % 251));
        vmm_torch_freed freed;
        if (i % 2 == 0)
            CHILD_REQUIRES(torch->share_close(opened) == VMM_OK);
        CHILD_REQUIRES(torch->release(block, &freed) == VMM_OK);
        if (i % 2 != 0)
            CHILD_REQUIRES(torch->share_close(opened) == VMM_OK);
    }
    return NULL;
}

TEST(threads_share_and_open_at_once)
{
    static size_t sizes[THREADS] = { 512, 512, 100000, 3 * MIB };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sharer_thread, &sizes[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    all_is_freed();
    assert_int_equal(stats_of().allocations.current, 0);
}

static void *opener_thread(void *context)
{
    const struct share_handle *handle = context;
    vmm_status status = VMM_OK;
    while (status == VMM_OK) {
        void *opened;
        status = torch->share_open(handle, sizeof *handle, 0, &opened);
        if (status == VMM_OK)
            CHILD_REQUIRES(torch->share_close(opened) == VMM_OK);
    }
    CHILD_REQUIRES(status == VMM_ERR_INVALID_ARGUMENT);
    return NULL;
}

TEST(a_block_may_be_freed_while_others_open_it)
{
    for (int round = 0; round < (IS_SLOW_BUILD ? 5 : 50); round++) {
        pthread_t threads[THREADS];
        unsigned char *block = block_make(4 * MIB, SENT_BYTE);
        struct share_handle handle = handle_of(block, 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, opener_thread, &handle), 0);
        (void)poll(NULL, 0, round % 5);
        block_drop(block);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        all_is_freed();
    }
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (argc > 1 && strcmp(argv[1], roles[i].name) == 0) {
            (void)alarm(CHILD_SECONDS);
            roles[i].run(argv + 2);
            return 0;
        }
    }
    torch_open(VMM_DEFAULT);
    return tests_run(NULL, NULL);
}
