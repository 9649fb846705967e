/*
 * Sharing when calls fail: each call of the driver and each allocation of host memory fails once, or from then on; each
 * call on the socket fails with each code, is interrupted, or moves few bytes only.
 *
 * The linker leads the library's calls of sendmsg(), recvmsg(), poll() and getrandom() to the functions __wrap_ below.
 */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/made_support.h"
#include "support/sim_support.h"
#include "support/tcp_support.h"

#include "api/create_on.h"
#include "base/hostmem.h"
#include "cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STEP_BYTES = 8 };

static const vmm_share_reach reaches[] = { VMM_SHARE_MACHINE, VMM_SHARE_FABRIC };
enum { REACHES = sizeof reaches / sizeof *reaches };

/* ---- Calls of the system ------------------------------------------------------------------- */

static struct {
    int call;      /* its number, from 1; 0: none fails */
    int code;      /* EINTR fails once, and the call is repeated */
    int calls;     /* so far */
    bool is_slow;  /* each call moves STEP_BYTES */
    int poll_code; /* of the next poll(); 0: it works */
} fault;

static bool is_failing(void)
{
    if (++fault.calls != fault.call)
        return false;
    errno = fault.code;
    return true;
}

ssize_t __real_sendmsg(int socket, const struct msghdr *header, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *header, int flags);
ssize_t __real_recvmsg(int socket, struct msghdr *header, int flags);
ssize_t __wrap_recvmsg(int socket, struct msghdr *header, int flags);
ssize_t __real_getrandom(void *buffer, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t bytes, unsigned flags);

ssize_t __wrap_sendmsg(int socket, const struct msghdr *header, int flags)
{
    struct msghdr part = *header;
    struct iovec step = { .iov_base = header->msg_iov->iov_base, .iov_len = STEP_BYTES };
    assert_int_equal(header->msg_iovlen, 1);
    if (is_failing())
        return -1;
    if (fault.is_slow)
        part.msg_iov = &step;
    return __real_sendmsg(socket, &part, flags);
}

ssize_t __wrap_recvmsg(int socket, struct msghdr *header, int flags)
{
    struct iovec step = { .iov_base = header->msg_iov->iov_base, .iov_len = STEP_BYTES };
    struct iovec *whole = header->msg_iov;
    if (is_failing())
        return -1;
    if (fault.is_slow)
        header->msg_iov = &step;
    ssize_t received = __real_recvmsg(socket, header, flags);
    header->msg_iov = whole;
    return received;
}

ssize_t __wrap_getrandom(void *buffer, size_t bytes, unsigned flags)
{
    return is_failing() ? -1 : __real_getrandom(buffer, bytes, flags);
}

int __real_poll(struct pollfd *descriptors, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *descriptors, nfds_t count, int timeout);

int __wrap_poll(struct pollfd *descriptors, nfds_t count, int timeout)
{
    errno = fault.poll_code;
    fault.poll_code = 0;
    return errno != 0 ? -1 : __real_poll(descriptors, count, timeout);
}

/* ---- Steps --------------------------------------------------------------------------------- */

/* Two caches of one device, and a socket between them. */
struct scene {
    struct driver *driver;
    vmm_cache *from;
    vmm_cache *to;
    void *block;
    int sockets[2];
    int descriptors; /* open */
};

/* VMM_SHARE_FABRIC: the socket is TCP. */
static struct scene scene_open(struct driver *driver, vmm_share_reach reach)
{
    struct scene scene = { .driver = driver };
    vmm_config config = CONFIG(.limit_bytes = 64 * MIB);
    assert_ok(vmm__cache_create_on(&config, driver, &scene.from));
    assert_ok(vmm__cache_create_on(&config, driver, &scene.to));
    vmm_pool *pool = pool_in(scene.from, .shareable = (int)reach);
    assert_ok(vmm_alloc_from(pool, 4 * MIB, NULL, &scene.block));
    if (reach == VMM_SHARE_FABRIC)
        assert_true(tcp_pair(scene.sockets));
    else
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, scene.sockets), 0);
    scene.descriptors = descriptors_open();
    return scene;
}

/* Nothing may be left: no descriptor, no memory, no export, no lane among those with memory. */
static void scene_close(const struct scene *scene)
{
    (void)close(scene->sockets[0]);
    (void)close(scene->sockets[1]);
    assert_int_equal(descriptors_open(), scene->descriptors - 2);
    assert_ok(vmm_wait(scene->to));
    assert_ok(vmm_trim(scene->to, 0, NULL));
    vmm_stats stats = stats_of(scene->to);
    assert_int_equal(stats.imported_bytes, 0);
    assert_int_equal(scene->driver->imports, 0);
    assert_int_equal(scene->to->lanes.stocked.count, 0);
    assert_ok(vmm_stats_get(scene->from, &stats));
    assert_int_equal(stats.unmovable_bytes, 0);
    assert_ok(vmm_free(scene->from, scene->block));
    assert_ok(vmm_wait(scene->from));
    assert_ok(vmm_trim(scene->from, 0, NULL));
    assert_ok(vmm_stats_get(scene->from, &stats));
    assert_int_equal(stats.reserved_bytes.current, 0);
    assert_ok(vmm_destroy(scene->from));
    assert_ok(vmm_destroy(scene->to));
    sim_assert_clean(scene->driver);
}

/* Shares the block once; returns the first failure, and closes what there is. */
static vmm_status block_pass(const struct scene *scene)
{
    vmm_share *share = NULL;
    vmm_share *received = NULL;
    void *imported = NULL;
    vmm_status status = vmm_share_export(scene->from, scene->block, &share);
    if (status == VMM_OK)
        status = vmm_share_send(share, scene->sockets[0]);
    if (status == VMM_OK)
        status = vmm_share_receive(scene->sockets[1], &received);
    if (status == VMM_OK)
        status = vmm_share_import(scene->to, received, NULL, &imported);
    if (imported != NULL)
        assert_ok(vmm_free(scene->to, imported));
    if (received != NULL)
        assert_ok(vmm_share_close(received, 0));
    if (share != NULL)
        assert_ok(vmm_share_close(share, 1));
    return status;
}

/* ---- Sweeps -------------------------------------------------------------------------------- */

SIM_TEST(each_driver_call_fails)
{
    static const vmm_status codes[] = { VMM_ERR_DRIVER, VMM_ERR_DEVICE_OOM, VMM_ERR_HOST_OOM };
    int failed = 0;
    for (unsigned variant = 0; variant < 12; variant++) {
        vmm_status status = VMM_ERR_DRIVER;
        for (uint64_t call = 1; status != VMM_OK || call < 12; call++) {
            struct scene scene = scene_open(driver, reaches[variant % 2]);
            vmm__sim_fail_at(driver, call, codes[variant / 4], variant / 2 % 2 != 0);
            status = block_pass(&scene);
            vmm__sim_fail_at(driver, 0, VMM_OK, false);
            failed += status != VMM_OK ? 1 : 0;
            if (status != VMM_OK)
                assert_true(strlen(vmm_last_error()) > 10);
            scene_close(&scene);
        }
    }
    assert_true(failed >= 48); /* export, import, map and access, each way */
}

static void each_allocation_fails(struct driver *driver, vmm_share_reach reach)
{
    bool has_failed = true;
    int failed = 0;
    for (uint64_t number = 1; has_failed; number++) {
        struct scene scene = scene_open(driver, reach);
        (void)vmm__host_fail_at(number);
        vmm_status status = block_pass(&scene);
        has_failed = vmm__host_fail_at(0) >= number; /* not every one is missed */
        failed += status == VMM_ERR_HOST_OOM ? 1 : 0;
        assert_true(status == VMM_OK || status == VMM_ERR_HOST_OOM);
        scene_close(&scene);
    }
    assert_true(failed >= 8); /* both shares and their chunks, the lane, its index and blocks */
}

SIM_TEST(each_allocation_of_a_share_fails)
{
    for (int i = 0; i < REACHES; i++)
        each_allocation_fails(driver, reaches[i]);
}

/* With fabric handles a message has two parts. */
SIM_TEST(each_call_of_the_system_fails)
{
    static const int codes[] = { EPIPE, EAGAIN, ENOBUFS, ECONNRESET, EMFILE };
    static const struct {
        vmm_share_reach reach;
        int call;
        const char *name;
    } calls[] = {
        { VMM_SHARE_MACHINE, 1, "getrandom" }, { VMM_SHARE_MACHINE, 2, "sendmsg" },
        { VMM_SHARE_MACHINE, 3, "recvmsg" },   { VMM_SHARE_FABRIC, 1, "getrandom" },
        { VMM_SHARE_FABRIC, 2, "sendmsg" },    { VMM_SHARE_FABRIC, 3, "sendmsg" },
        { VMM_SHARE_FABRIC, 4, "recvmsg" },    { VMM_SHARE_FABRIC, 5, "recvmsg" },
    };
    for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            struct scene scene = scene_open(driver, calls[call].reach);
            fault.call = calls[call].call;
            fault.code = codes[i];
            fault.calls = 0;
            assert_status(block_pass(&scene), VMM_ERR_DRIVER);
            fault.call = 0;
            assert_non_null(strstr(vmm_last_error(), calls[call].name));
            assert_non_null(strstr(vmm_last_error(), strerror(codes[i])));
            scene_close(&scene);
        }
    }
}

SIM_TEST(an_interrupted_call_is_repeated)
{
    for (int call = 2; call <= 7; call++) {
        vmm_share_reach reach = call <= 3 ? VMM_SHARE_MACHINE : VMM_SHARE_FABRIC;
        struct scene scene = scene_open(driver, reach);
        fault.call = call <= 3 ? call : call - 2;
        fault.code = EINTR;
        fault.calls = 0;
        assert_ok(block_pass(&scene));
        fault.call = 0;
        assert_int_equal(fault.calls, call <= 3 ? 4 : 6);
        scene_close(&scene);
    }
}

/* In non-blocking mode a call that finds the socket busy is repeated when it is ready. */
SIM_TEST(a_wait_for_the_socket_is_interrupted_or_fails)
{
    static const int codes[] = { 0, EINTR, ENOMEM };
    for (int call = 2; call <= 3; call++) {
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            struct scene scene = scene_open(driver, VMM_SHARE_MACHINE);
            for (int side = 0; side < 2; side++)
                assert_int_equal(fcntl(scene.sockets[side], F_SETFL, O_NONBLOCK), 0);
            fault.call = call;
            fault.code = EAGAIN;
            fault.calls = 0;
            fault.poll_code = codes[i];
            assert_status(block_pass(&scene), codes[i] == ENOMEM ? VMM_ERR_DRIVER : VMM_OK);
            fault.call = 0;
            assert_int_equal(fault.poll_code, 0);
            scene_close(&scene);
        }
    }
}

SIM_TEST(a_message_may_come_in_small_parts)
{
    for (int i = 0; i < REACHES; i++) {
        struct scene scene = scene_open(driver, reaches[i]);
        fault.is_slow = true;
        fault.calls = 0;
        assert_ok(block_pass(&scene));
        fault.is_slow = false;
        assert_true(fault.calls > 20);
        scene_close(&scene);
    }
}

SIM_TEST(a_lost_device_refuses_and_leaves_nothing)
{
    struct scene scene = scene_open(driver, VMM_SHARE_FABRIC);
    vmm_share *share;
    vmm_share *other = NULL;
    void *imported = NULL;
    assert_ok(vmm_share_export(scene.from, scene.block, &share));
    vmm__sim_fail_at(driver, 1, VMM_ERR_LOST, true);
    assert_status(vmm_share_import(scene.to, share, NULL, &imported), VMM_ERR_LOST);
    assert_status(vmm_share_import(scene.to, share, NULL, &imported), VMM_ERR_LOST);
    assert_status(vmm_share_export(scene.from, scene.block, &other), VMM_ERR_LOST);
    assert_ok(vmm_share_send(share, scene.sockets[0]));
    assert_ok(vmm_share_receive(scene.sockets[1], &other));
    assert_ok(vmm_share_close(other, 0));
    assert_ok(vmm_share_close(share, 1));
    assert_ok(vmm_free(scene.from, scene.block));
    (void)close(scene.sockets[0]);
    (void)close(scene.sockets[1]);
    assert_int_equal(descriptors_open(), scene.descriptors - 2);
    assert_status(vmm_destroy(scene.from), VMM_ERR_LOST);
    assert_status(vmm_destroy(scene.to), VMM_ERR_LOST);
}
