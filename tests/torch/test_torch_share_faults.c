/*
 * Memory that processes share, when calls of the system fail in the process that shares or in the one that opens, and
 * when the other process is no vmmcache.
 *
 * The linker leads the library's calls of the functions in CALL_MAP to the functions __wrap_ below.
 */
#define _GNU_SOURCE
#include "base/hostmem.h"
#include "torch/share_steps.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Calls of the system -------------------------------------------------------------------- */

/* X(name, result when it fails, type, parameters, arguments) */
#define CALL_MAP(X)                                                                                \
    X(getrandom, -1, ssize_t, (void *to, size_t bytes, unsigned flags), (to, bytes, flags))        \
    X(socket, -1, int, (int domain, int type, int protocol), (domain, type, protocol))             \
    X(bind, -1, int, (int file, const struct sockaddr *to, socklen_t bytes), (file, to, bytes))    \
    X(listen, -1, int, (int file, int most), (file, most))                                         \
    X(connect, -1, int, (int file, const struct sockaddr *to, socklen_t bytes), (file, to, bytes)) \
    X(setsockopt, -1, int, (int file, int level, int name, const void *value, socklen_t bytes),    \
      (file, level, name, value, bytes))                                                           \
    X(getsockopt, -1, int, (int file, int level, int name, void *value, socklen_t *bytes),         \
      (file, level, name, value, bytes))                                                           \
    X(send, -1, ssize_t, (int file, const void *from, size_t bytes, int flags),                    \
      (file, from, IS_SLOW(bytes), flags))                                                         \
    X(recv, -1, ssize_t, (int file, void *to, size_t bytes, int flags),                            \
      (file, to, IS_SLOW(bytes), flags))                                                           \
    X(accept4, -1, int, (int file, struct sockaddr *from, socklen_t *bytes, int flags),            \
      (file, from, bytes, flags))                                                                  \
    X(poll, -1, int, (struct pollfd * files, nfds_t count, int ms), (files, count, ms))            \
    X(pthread_create, errno, int,                                                                  \
      (pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context), \
      (thread, attributes, run, context))

enum call {
#define CALL_ENUM(name, result, type, parameters, arguments) CALL_##name,
    CALL_MAP(CALL_ENUM)
};

enum { STALLS = -1 }; /* a code: the call waits for fault_end() */

static struct {
    _Atomic(enum call) call;
    atomic_int code;
    atomic_bool is_theirs; /* in another thread than the test's */
    atomic_int next;       /* it fails when this falls to 0; below: it has failed */
    atomic_bool is_slow;
    atomic_bool has_ended;
} fault;

static _Thread_local bool is_test;

#define IS_SLOW(bytes) (atomic_load(&fault.is_slow) && (bytes) > 0 ? 1 : (bytes))

/* The call fails with the code the nth time. */
static void fault_begin(enum call call, int code, bool is_theirs, int nth)
{
    fault.call = call;
    fault.code = code;
    fault.is_theirs = is_theirs;
    atomic_store(&fault.has_ended, false);
    atomic_store(&fault.next, nth);
}

/* Whether it failed. */
static bool fault_end(void)
{
    atomic_store(&fault.has_ended, true);
    return atomic_exchange(&fault.next, 0) < 0;
}

static void fault_await(void)
{
    while (atomic_load(&fault.next) >= 0)
        (void)usleep(1000);
}

static bool is_failing(enum call call)
{
    if (atomic_load(&fault.next) <= 0 || call != fault.call || fault.is_theirs == is_test)
        return false;
    if (atomic_fetch_sub(&fault.next, 1) > 1)
        return false;
    atomic_store(&fault.next, -1);
    while (fault.code == STALLS && !atomic_load(&fault.has_ended))
        (void)usleep(1000);
    errno = fault.code;
    return fault.code != STALLS;
}

#define CALL_WRAP(name, result, type, parameters, arguments)                                       \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return is_failing(CALL_##name) ? (result) : __real_##name arguments;                       \
    }
CALL_MAP(CALL_WRAP)

/* What the C library's headers make of two of them in builds that fortify the source. */
int __wrap___poll_chk(struct pollfd *files, nfds_t count, int ms, size_t room);
ssize_t __wrap___recv_chk(int file, void *to, size_t bytes, size_t room, int flags);

int __wrap___poll_chk(struct pollfd *files, nfds_t count, int ms, size_t room)
{
    (void)room;
    return __wrap_poll(files, count, ms);
}

ssize_t __wrap___recv_chk(int file, void *to, size_t bytes, size_t room, int flags)
{
    (void)room;
    return __wrap_recv(file, to, bytes, flags);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static vmm_status share_status(const void *block)
{
    struct share_handle handle;
    size_t bytes = sizeof handle;
    uint64_t offset;
    return torch->share(block, &handle, &bytes, &offset);
}

static void line_has(const char *text)
{
    if (strstr(vmm_last_error(), text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, vmm_last_error());
}

static void opens(const struct share_handle *handle)
{
    unsigned char *opened = handle_open(handle);
    assert_true(bytes_are(opened, MIB, 7));
    assert_ok(torch->share_close(opened));
}

/* ---- The process that shares ------------------------------------------------------------------ */

TEST(a_server_that_cannot_start_is_tried_again)
{
    static const struct {
        enum call call;
        int code;
        vmm_status status;
        const char *text;
    } cases[] = { { CALL_getrandom, ENOSYS, VMM_ERR_DRIVER, "getrandom()" },
                  { CALL_socket, EMFILE, VMM_ERR_DRIVER, "socket()" },
                  { CALL_bind, EADDRINUSE, VMM_ERR_DRIVER, "bind()" },
                  { CALL_listen, EADDRINUSE, VMM_ERR_DRIVER, "listen()" },
                  { CALL_pthread_create, EAGAIN, VMM_ERR_HOST_OOM, "could not start a thread" } };
    unsigned char *block = block_make(MIB, 7);
    int before = descriptors_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fault_begin(cases[i].call, cases[i].code, false, 1);
        assert_status(share_status(block), cases[i].status);
        assert_true(fault_end());
        line_has(cases[i].text);
        assert_int_equal(descriptors_open(), before);
    }
    fault_begin(CALL_getrandom, EIO, false, 2); /* of the token */
    assert_status(share_status(block), VMM_ERR_DRIVER);
    assert_true(fault_end());
    struct share_handle handle = handle_of(block, 0);
    opens(&handle);
    block_drop(block);
}

TEST(a_server_goes_on_after_a_call_that_failed)
{
    static const struct {
        enum call call;
        int code;
        vmm_status status;
    } cases[] = { { CALL_accept4, EMFILE, VMM_OK },
                  { CALL_accept4, ECONNABORTED, VMM_OK },
                  { CALL_accept4, EINTR, VMM_OK },
                  { CALL_poll, EINTR, VMM_OK },
                  { CALL_recv, EINTR, VMM_OK },
                  { CALL_recv, EAGAIN, VMM_OK },
                  { CALL_recv, ECONNRESET, VMM_ERR_INVALID_ARGUMENT },
                  { CALL_getsockopt, EBADF, VMM_ERR_INVALID_ARGUMENT },
                  { CALL_setsockopt, EBADF, VMM_ERR_INVALID_ARGUMENT },
                  { CALL_send, EINTR, VMM_OK },
                  { CALL_send, EPIPE, VMM_ERR_INVALID_ARGUMENT } };
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    int before = descriptors_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *opened = NULL;
        fault_begin(cases[i].call, cases[i].code, true, 1);
        assert_status(torch->share_open(&handle, sizeof handle, 0, &opened), cases[i].status);
        fault_await();
        assert_true(fault_end());
        if (opened != NULL)
            assert_ok(torch->share_close(opened));
        descriptors_are_closed(before);
        opens(&handle);
    }
    block_drop(block);
    all_is_freed();
}

static void *handle_open_thread(void *context)
{
    unsigned char *opened = handle_open(context);
    CHILD_REQUIRES(torch->share_close(opened) == VMM_OK);
    return NULL;
}

TEST(a_block_that_is_freed_while_it_is_sent_is_closed_afterwards)
{
    pthread_t thread;
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    fault_begin(CALL_send, STALLS, true, 2); /* the opener's request is the first */
    assert_int_equal(pthread_create(&thread, NULL, handle_open_thread, &handle), 0);
    fault_await();
    block_drop(block);
    assert_true(fault_end());
    assert_int_equal(pthread_join(thread, NULL), 0);
    all_is_freed();
    assert_status(open_status(&handle, sizeof handle), VMM_ERR_INVALID_ARGUMENT);
    line_has("has freed this memory");
}

static void *share_thread(void *block)
{
    struct share_handle *handle = malloc(sizeof *handle);
    *handle = handle_of(block, 0);
    return handle;
}

TEST(threads_that_share_a_block_at_once_get_one_handle)
{
    pthread_t thread;
    void *theirs;
    unsigned char *block = block_make(MIB, 7);
    fault_begin(CALL_getrandom, STALLS, true, 1);
    assert_int_equal(pthread_create(&thread, NULL, share_thread, block), 0);
    fault_await();
    struct share_handle handle = handle_of(block, 0);
    assert_true(fault_end());
    assert_int_equal(pthread_join(thread, &theirs), 0);
    assert_memory_equal(theirs, &handle, sizeof handle);
    free(theirs);
    opens(&handle);
    block_drop(block);
    all_is_freed();
}

/* ---- The process that opens ------------------------------------------------------------------- */

TEST(a_call_that_fails_opens_nothing)
{
    static const struct {
        enum call call;
        int code;
        int nth;
        vmm_status status;
        const char *text;
    } cases[] = { { CALL_socket, EMFILE, 1, VMM_ERR_DRIVER, "socket()" },
                  { CALL_setsockopt, EDOM, 1, VMM_ERR_DRIVER, "setsockopt()" },
                  { CALL_setsockopt, EDOM, 2, VMM_ERR_DRIVER, "setsockopt()" },
                  { CALL_connect, ECONNREFUSED, 1, VMM_ERR_INVALID_ARGUMENT, "has ended" },
                  { CALL_connect, EACCES, 1, VMM_ERR_DRIVER, "connect()" },
                  { CALL_connect, EAGAIN, 1, VMM_ERR_DRIVER, "has not answered" },
                  { CALL_getsockopt, EBADF, 1, VMM_ERR_INVALID_ARGUMENT, "another user" },
                  { CALL_send, EPIPE, 1, VMM_ERR_INVALID_ARGUMENT, "has ended" },
                  { CALL_send, ENOBUFS, 1, VMM_ERR_DRIVER, "send()" },
                  { CALL_recv, EAGAIN, 1, VMM_ERR_DRIVER, "has not answered" },
                  { CALL_recv, ECONNRESET, 1, VMM_ERR_INVALID_ARGUMENT, "has ended" },
                  { CALL_recv, EIO, 1, VMM_ERR_DRIVER, "recv()" } };
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    int before = descriptors_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fault_begin(cases[i].call, cases[i].code, false, cases[i].nth);
        assert_status(open_status(&handle, sizeof handle), cases[i].status);
        assert_true(fault_end());
        line_has(cases[i].text);
        descriptors_are_closed(before);
        opens(&handle);
    }
    block_drop(block);
    all_is_freed();
}

TEST(interrupted_and_slow_calls_go_on)
{
    static const enum call calls[] = { CALL_send, CALL_recv };
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fault_begin(calls[i], EINTR, false, 1);
        opens(&handle);
        assert_true(fault_end());
    }
    atomic_store(&fault.is_slow, true);
    opens(&handle);
    atomic_store(&fault.is_slow, false);
    block_drop(block);
}

TEST(memory_is_closed_although_the_wait_for_the_device_fails)
{
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    unsigned char *opened = handle_open(&handle);
    (void)vmm__host_fail_at(1);
    vmm_status status = torch->share_close(opened);
    (void)vmm__host_fail_at(0);
    assert_status(status, VMM_ERR_HOST_OOM);
    assert_status(torch->share_close(opened), VMM_ERR_UNKNOWN_POINTER);
    block_drop(block);
    all_is_freed();
}

TEST(a_handle_names_one_socket_exactly)
{
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    struct share_handle forged = handle;
    memset(forged.socket, 'x', sizeof forged.socket); /* no zero ends it */
    assert_status(open_status(&forged, sizeof forged), VMM_ERR_INVALID_ARGUMENT);
    forged = handle;
    forged.socket[sizeof forged.socket - 1] = 'x';
    assert_status(open_status(&forged, sizeof forged), VMM_ERR_INVALID_ARGUMENT);
    forged = handle;
    memset(forged.socket, 0, sizeof forged.socket);
    assert_status(open_status(&forged, sizeof forged), VMM_ERR_INVALID_ARGUMENT);
    line_has("names no valid socket");
    block_drop(block);
}

/* ---- Exporters that are not the library -------------------------------------------------------- */

struct exporter {
    int listener;
    struct share_answer answer;
    size_t answer_bytes;
};

static void *exporter_thread(void *context)
{
    const struct exporter *exporter = context;
    struct share_request request;
    struct pollfd polled = { .fd = exporter->listener, .events = POLLIN };
    CHILD_REQUIRES(poll(&polled, 1, -1) == 1);
    int socket = accept4(exporter->listener, NULL, NULL, SOCK_CLOEXEC);
    CHILD_REQUIRES(vmm__share_bytes_receive(socket, &request, sizeof request) == VMM_OK);
    CHILD_REQUIRES(vmm__share_bytes_send(socket, &exporter->answer, exporter->answer_bytes) ==
                   VMM_OK);
    (void)close(socket);
    return NULL;
}

TEST(answers_are_checked)
{
    enum { WHOLE = sizeof(struct share_answer) };
    static const struct {
        struct share_answer answer;
        size_t bytes;
        const char *text;
    } cases[] = {
        { { .magic = SHARE_MAGIC + 1, .result = SHARE_GRANTED }, WHOLE, "not an answer of" },
        { { .magic = SHARE_MAGIC, .result = SHARE_GRANTED, .zero = 1 }, WHOLE, "not an answer of" },
        { { .magic = SHARE_MAGIC, .result = SHARE_REFUSED + 1 }, WHOLE, "not an answer of" },
        { { .magic = SHARE_MAGIC, .result = SHARE_UNKNOWN }, WHOLE, "has freed this memory" },
        { { .magic = SHARE_MAGIC, .result = SHARE_REFUSED }, WHOLE, "has another version" },
        { { .magic = SHARE_MAGIC, .result = SHARE_GRANTED }, WHOLE / 2, "has ended" },
        { { .magic = SHARE_MAGIC, .result = SHARE_GRANTED }, WHOLE, "" } /* and no share */
    };
    unsigned char *block = block_make(MIB, 7);
    struct share_handle handle = handle_of(block, 0);
    struct exporter exporter;
    assert_ok(vmm__share_listen(handle.socket, &exporter.listener));
    int before = descriptors_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pthread_t thread;
        exporter.answer = cases[i].answer;
        exporter.answer_bytes = cases[i].bytes;
        assert_int_equal(pthread_create(&thread, NULL, exporter_thread, &exporter), 0);
        assert_status(open_status(&handle, sizeof handle), VMM_ERR_INVALID_ARGUMENT);
        line_has(cases[i].text);
        assert_int_equal(pthread_join(thread, NULL), 0);
        descriptors_are_closed(before);
    }
    (void)close(exporter.listener);
    assert_status(open_status(&handle, sizeof handle), VMM_ERR_INVALID_ARGUMENT);
    line_has("has ended");
    block_drop(block);
}

int main(void)
{
    is_test = true;
    (void)alarm(CHILD_SECONDS);
    torch_open(VMM_DEFAULT);
    return tests_run(NULL, NULL);
}
