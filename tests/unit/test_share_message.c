/* Shares on a socket: shares of many chunks, and messages that are forged, cut short or bring the wrong descriptors. */
#define _GNU_SOURCE
#include "support/folder_support.h"
#include "support/tcp_support.h"
#include "support/test_support.h"

#include "base/hostmem.h"
#include "cache/share/message.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 2 << 20 };

/* ---- Steps --------------------------------------------------------------------------------- */

/* A socket, what is open without it, and host memory. */
struct scene {
    int sockets[2];
    int descriptors;
};

static int scene_begin(void **state)
{
    static struct scene scene;
    scene.descriptors = descriptors_open();
    *state = &scene;
    return socketpair(AF_UNIX, SOCK_STREAM, 0, scene.sockets);
}

static int scene_end(void **state)
{
    const struct scene *scene = *state;
    (void)close(scene->sockets[0]);
    (void)close(scene->sockets[1]);
    return descriptors_open() == scene->descriptors && vmm__host_outstanding() == 0 ? 0 : -1;
}

#define MESSAGE_TEST(name) TEST_WITH(name, scene_begin, scene_end, const struct scene *scene)

/* A share whose chunks are fabric handles. */
static struct share *fabric_share_make(uint32_t count)
{
    struct share *share;
    assert_ok(vmm__share_open("test", count, &share));
    vmm__message_head_set(&share->head);
    for (uint32_t i = 0; i < count; i++) {
        assert_ok(vmm__share_chunk_open("test", &share->chunks[i]));
        share->chunks[i].exported->has_fabric = true;
        memset(&share->chunks[i].exported->fabric, (int)(1 + i % 255), DRIVER_FABRIC_BYTES);
        share->chunks[i].bytes = (i + 1) * (uint64_t)CHUNK_BYTES;
        share->head.bytes += share->chunks[i].bytes;
    }
    return share;
}

/* A share whose chunks are pipes' ends, all of them different files. */
static struct share *share_make(uint32_t count)
{
    struct share *share;
    assert_ok(vmm__share_open("test", count, &share));
    vmm__message_head_set(&share->head);
    share->head.nonce = 7;
    for (uint32_t i = 0; i < count; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        (void)close(ends[1]);
        assert_ok(vmm__share_chunk_open("test", &share->chunks[i]));
        share->chunks[i].exported->descriptor = ends[0];
        share->chunks[i].bytes = (i + 1) * (uint64_t)CHUNK_BYTES;
        share->head.bytes += share->chunks[i].bytes;
    }
    return share;
}

static uint64_t file_number(int descriptor)
{
    struct stat file;
    assert_int_equal(fstat(descriptor, &file), 0);
    return file.st_ino;
}

/* A message as vmm__message_send() would send it, for `count` chunks. */
static struct message message_make(uint32_t count)
{
    struct message message = { .count = count };
    vmm__message_head_set(&message.head);
    message.head.count = count;
    message.head.bytes = CHUNK_BYTES;
    for (uint32_t i = 0; i < count; i++)
        message.chunk_bytes[i] = CHUNK_BYTES;
    return message;
}

/* Sends bytes with so many descriptors. */
static void bytes_send(int socket, const void *bytes, size_t size, uint32_t descriptors)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
    struct iovec iovec = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
    struct msghdr header = { .msg_iov = &iovec, .msg_iovlen = 1 };
    if (descriptors > 0) {
        memset(control, 0, sizeof control);
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
        for (uint32_t i = 0; i < descriptors; i++)
            memcpy(CMSG_DATA(rights) + i * sizeof(int), &(int){ STDERR_FILENO }, sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &header, 0), size);
}

static void receive_refuses(const struct scene *scene, const char *part)
{
    struct share *share = NULL;
    assert_status(vmm__message_receive(scene->sockets[1], &share), VMM_ERR_INVALID_ARGUMENT);
    if (strstr(vmm_last_error(), part) == NULL)
        print_error("last error: %s\n", vmm_last_error());
    assert_non_null(strstr(vmm_last_error(), part));
    assert_null(share);
    assert_int_equal(descriptors_open(), scene->descriptors + 2);
}

/* ---- Whole shares -------------------------------------------------------------------------- */

MESSAGE_TEST(a_share_of_many_chunks_arrives_in_order)
{
    static const uint32_t counts[] = { 1, MESSAGE_CHUNKS, MESSAGE_CHUNKS + 1, 200 };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct share *share = share_make(counts[i]);
        struct share *received;
        assert_ok(vmm__message_send(share, scene->sockets[0]));
        assert_ok(vmm__message_receive(scene->sockets[1], &received));
        assert_memory_equal(&received->head, &share->head, sizeof share->head);
        for (uint32_t c = 0; c < counts[i]; c++) {
            assert_int_equal(received->chunks[c].bytes, share->chunks[c].bytes);
            assert_int_equal(file_number(received->chunks[c].exported->descriptor),
                             file_number(share->chunks[c].exported->descriptor));
            int flags = fcntl(received->chunks[c].exported->descriptor, F_GETFD);
            assert_int_equal(flags & FD_CLOEXEC, FD_CLOEXEC);
        }
        vmm__share_close(received);
        vmm__share_close(share);
    }
}

static void fabrics_pass(const int sockets[2], uint32_t count)
{
    struct share *share = fabric_share_make(count);
    struct share *received;
    assert_ok(vmm__message_send(share, sockets[0]));
    assert_ok(vmm__message_receive(sockets[1], &received));
    assert_int_equal(received->head.count, count);
    assert_int_equal(received->head.bytes, share->head.bytes);
    for (uint32_t c = 0; c < count; c++) {
        const struct chunk_export *exported = received->chunks[c].exported;
        assert_int_equal(received->chunks[c].bytes, share->chunks[c].bytes);
        assert_true(exported->has_fabric && exported->descriptor == NO_DESCRIPTOR);
        assert_memory_equal(&exported->fabric, &share->chunks[c].exported->fabric,
                            sizeof exported->fabric);
    }
    vmm__share_close(received);
    vmm__share_close(share);
}

MESSAGE_TEST(fabric_handles_of_many_chunks_arrive_in_order)
{
    static const uint32_t counts[] = { 1, MESSAGE_CHUNKS, MESSAGE_CHUNKS + 1, 100 };
    int packets[2];
    int tcp[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets), 0);
    assert_true(tcp_pair(tcp));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        fabrics_pass(scene->sockets, counts[i]);
        fabrics_pass(packets, counts[i]);
        fabrics_pass(tcp, counts[i]);
    }
    for (int side = 0; side < 2; side++) {
        (void)close(packets[side]);
        (void)close(tcp[side]);
    }
}

MESSAGE_TEST(a_share_with_some_fabric_handles_has_none)
{
    int tcp[2];
    struct share *share = fabric_share_make(3);
    share->chunks[1].exported->has_fabric = false;
    assert_true(tcp_pair(tcp));
    assert_status(vmm__message_send(share, tcp[0]), VMM_ERR_INVALID_ARGUMENT);
    assert_false(share->was_sent);
    (void)close(tcp[0]);
    (void)close(tcp[1]);
    vmm__share_close(share);
}

MESSAGE_TEST(other_data_may_surround_a_share)
{
    char text[6] = "";
    struct share *share = share_make(MESSAGE_CHUNKS + 1);
    struct share *received;
    assert_ok(vmm__message_send(share, scene->sockets[0]));
    bytes_send(scene->sockets[0], "after", sizeof "after", 0);
    assert_ok(vmm__message_receive(scene->sockets[1], &received));
    assert_int_equal(read(scene->sockets[1], text, sizeof text), sizeof text);
    assert_string_equal(text, "after");
    vmm__share_close(received);
    vmm__share_close(share);
}

/* ---- Sockets that do not block ----------------------------------------------------------------- */

static void *share_send_slowly(void *argument)
{
    const struct scene *scene = argument;
    struct share *share = share_make(200);
    (void)usleep(20000); /* the receiver waits */
    assert_ok(vmm__message_send(share, scene->sockets[0]));
    vmm__share_close(share);
    return NULL;
}

/* Both sides wait: the receiver for the first byte, the sender for room. */
/* A program may have asked the kernel to say who sends: the credentials of the sender, or a descriptor of its process,
 * which kernels before 6.5 do not have. */
MESSAGE_TEST(what_the_kernel_adds_is_left_out)
{
    enum { PASS_PIDFD = 76, CHUNKS = 40 };
    static const int options[] = { SO_PASSCRED, PASS_PIDFD };
    struct share *share = share_make(CHUNKS);
    int yes = 1;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct share *received;
        (void)setsockopt(scene->sockets[1], SOL_SOCKET, options[i], &yes, sizeof yes);
        assert_ok(vmm__message_send(share, scene->sockets[0]));
        assert_ok(vmm__message_receive(scene->sockets[1], &received));
        assert_int_equal(received->head.count, CHUNKS);
        vmm__share_close(received);
    }
    vmm__share_close(share);
}

MESSAGE_TEST(sockets_in_non_blocking_mode_wait)
{
    static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct scene own = { .descriptors = scene->descriptors + 2 };
        struct share *received;
        pthread_t sender;
        assert_int_equal(socketpair(AF_UNIX, types[i] | SOCK_NONBLOCK, 0, own.sockets), 0);
        assert_int_equal(
            setsockopt(own.sockets[0], SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int)), 0);
        assert_int_equal(pthread_create(&sender, NULL, share_send_slowly, &own), 0);
        assert_ok(vmm__message_receive(own.sockets[1], &received));
        assert_int_equal(pthread_join(sender, NULL), 0);
        assert_int_equal(received->head.count, 200);
        vmm__share_close(received);
        (void)close(own.sockets[0]);
        (void)close(own.sockets[1]);
    }
}

/* The program has bounded the time of each call. */
MESSAGE_TEST(a_time_limit_of_the_socket_holds)
{
    struct timeval limit = { .tv_usec = 1000 };
    struct share *received = NULL;
    assert_int_equal(setsockopt(scene->sockets[1], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit),
                     0);
    assert_status(vmm__message_receive(scene->sockets[1], &received), VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), strerror(EAGAIN)));
}

/* ---- Hostile bytes ------------------------------------------------------------------------- */

/* A message with one field changed. */
#define SPOILT(field, value, descriptors, part)                                                    \
    do {                                                                                           \
        struct message message = message_make(1);                                                  \
        message.field = (value);                                                                   \
        bytes_send(scene->sockets[0], &message, sizeof message, descriptors);                      \
        receive_refuses(scene, part);                                                              \
    } while (0)

MESSAGE_TEST(a_wrong_field_is_refused)
{
    SPOILT(head.magic, 0, 1, "magic");
    SPOILT(head.version, 2, 1, "version");
    SPOILT(head.count, 0, 1, "number of chunks");
    SPOILT(head.count, SHARE_CHUNKS_MOST + 1, 1, "number of chunks");
    SPOILT(head.count, UINT32_MAX, 1, "number of chunks");
    SPOILT(head.count, 2, 1, "must come next");
    SPOILT(first, 1, 1, "must come next");
    SPOILT(count, 0, 1, "must come next");
    SPOILT(count, UINT32_MAX, 1, "must come next");
    SPOILT(chunk_bytes[0], 0, 1, "sizes");
    SPOILT(head.offset, CHUNK_BYTES, 1, "block does not lie");
    SPOILT(head.offset, 512, 1, "block does not lie");
    SPOILT(head.offset, UINT64_MAX - 511, 1, "block does not lie");
    SPOILT(head.bytes, UINT64_MAX, 1, "block does not lie");
}

MESSAGE_TEST(sizes_that_overflow_are_refused)
{
    struct message message = message_make(2);
    message.chunk_bytes[0] = UINT64_MAX;
    bytes_send(scene->sockets[0], &message, sizeof message, 2);
    receive_refuses(scene, "sizes");
}

MESSAGE_TEST(a_wrong_number_of_descriptors_is_refused)
{
    SPOILT(first, 0, 0, "number of descriptors");
    SPOILT(first, 0, 2, "number of descriptors");
    SPOILT(first, 0, MESSAGE_CHUNKS + 1, "number of descriptors");
    SPOILT(first, 0, 253, "number of descriptors");
    struct message message = message_make(1);
    bytes_send(scene->sockets[0], &message, 8, 1); /* some with each part */
    bytes_send(scene->sockets[0], (char *)&message + 8, sizeof message - 8, 1);
    receive_refuses(scene, "number of descriptors");
}

MESSAGE_TEST(a_message_of_another_share_is_refused)
{
    struct message message = message_make(MESSAGE_CHUNKS);
    message.head.count = MESSAGE_CHUNKS + 1;
    bytes_send(scene->sockets[0], &message, sizeof message, MESSAGE_CHUNKS);
    message.first = MESSAGE_CHUNKS;
    message.count = 1;
    message.head.nonce++;
    bytes_send(scene->sockets[0], &message, sizeof message, 1);
    receive_refuses(scene, "another share");
}

MESSAGE_TEST(a_repeated_message_is_refused)
{
    struct message message = message_make(MESSAGE_CHUNKS);
    message.head.count = 3 * MESSAGE_CHUNKS;
    bytes_send(scene->sockets[0], &message, sizeof message, MESSAGE_CHUNKS);
    bytes_send(scene->sockets[0], &message, sizeof message, MESSAGE_CHUNKS);
    receive_refuses(scene, "must come next");
}

MESSAGE_TEST(a_socket_that_closes_is_no_share)
{
    errno = EINTR; /* of an earlier call */
    assert_int_equal(shutdown(scene->sockets[0], SHUT_WR), 0);
    receive_refuses(scene, "has closed the socket");
}

/* A message with fabric handles, as vmm__message_send() would send it. */
struct fabric_message {
    struct message message;
    struct driver_fabric fabrics[MESSAGE_CHUNKS];
};

static struct fabric_message fabric_message_make(const struct scene *scene, uint32_t count)
{
    struct fabric_message whole = { .fabrics = { { { 0 } } } };
    struct share *share = fabric_share_make(count);
    size_t bytes = sizeof whole.message + count * sizeof *whole.fabrics;
    assert_ok(vmm__message_send(share, scene->sockets[0]));
    assert_int_equal(recv(scene->sockets[1], &whole, bytes, MSG_WAITALL), bytes);
    vmm__share_close(share);
    return whole;
}

MESSAGE_TEST(fabric_handles_that_are_cut_short_are_refused)
{
    static const size_t missing[] = { 1, DRIVER_FABRIC_BYTES, 2 * DRIVER_FABRIC_BYTES };
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        struct scene own = { .descriptors = scene->descriptors + 1 };
        struct fabric_message whole = fabric_message_make(scene, 2);
        size_t bytes = sizeof whole.message + 2 * sizeof *whole.fabrics;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, own.sockets), 0);
        bytes_send(own.sockets[0], &whole, bytes - missing[i], 0);
        (void)close(own.sockets[0]);
        receive_refuses(&own, "cut short");
        (void)close(own.sockets[1]);
    }
}

MESSAGE_TEST(descriptors_beside_fabric_handles_are_refused)
{
    for (uint32_t is_late = 0; is_late <= 1; is_late++) {
        struct fabric_message whole = fabric_message_make(scene, 1);
        bytes_send(scene->sockets[0], &whole.message, sizeof whole.message, 1 - is_late);
        bytes_send(scene->sockets[0], whole.fabrics, sizeof *whole.fabrics, is_late);
        receive_refuses(scene, "number of descriptors");
    }
}

MESSAGE_TEST(the_two_forms_do_not_mix)
{
    struct fabric_message whole = fabric_message_make(scene, MESSAGE_CHUNKS);
    struct message other = message_make(1);
    whole.message.head.count = MESSAGE_CHUNKS + 1;
    other.head = whole.message.head;
    other.head.magic = message_make(1).head.magic;
    other.first = MESSAGE_CHUNKS;
    bytes_send(scene->sockets[0], &whole, sizeof whole, 0);
    bytes_send(scene->sockets[0], &other, sizeof other, 1);
    receive_refuses(scene, "another share");
}

MESSAGE_TEST(a_message_that_is_cut_short_is_refused)
{
    struct message message = message_make(1);
    bytes_send(scene->sockets[0], &message, sizeof message - 1, 1);
    assert_int_equal(shutdown(scene->sockets[0], SHUT_WR), 0);
    receive_refuses(scene, "cut short");
}

MESSAGE_TEST(a_share_that_is_cut_short_is_refused)
{
    struct message message = message_make(MESSAGE_CHUNKS);
    message.head.count = MESSAGE_CHUNKS + 1;
    bytes_send(scene->sockets[0], &message, sizeof message, MESSAGE_CHUNKS);
    assert_int_equal(shutdown(scene->sockets[0], SHUT_WR), 0);
    receive_refuses(scene, "closed the socket");
}

MESSAGE_TEST(packets_of_another_size_are_refused)
{
    struct scene packets = { .descriptors = scene->descriptors + 2 };
    char bytes[sizeof(struct message) + 1] = "";
    struct message message = message_make(1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets.sockets), 0);
    memcpy(bytes, &message, sizeof message);
    bytes_send(packets.sockets[0], bytes, sizeof bytes, 1);
    receive_refuses(&packets, "too long");
    bytes_send(packets.sockets[0], bytes, 100, 1);
    receive_refuses(&packets, "cut short"); /* at once: the other side is still there */
    (void)close(packets.sockets[0]);
    (void)close(packets.sockets[1]);
}

MESSAGE_TEST(random_bytes_are_refused)
{
    uint64_t word = 88172645463325252;
    for (int round = 0; round < 1000; round++) {
        struct message message = message_make(1);
        for (int change = 0; change < 1 + round % 3; change++) {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            ((unsigned char *)&message)[word % offsetof(struct message, chunk_bytes)] ^=
                (unsigned char)(1 + (word >> 40) % 255);
        }
        struct share *share = NULL;
        struct scene own = { .descriptors = scene->descriptors + 2 };
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, own.sockets), 0);
        bytes_send(own.sockets[0], &message, sizeof message, 1);
        (void)close(own.sockets[0]);
        vmm_status status = vmm__message_receive(own.sockets[1], &share);
        assert_true(status == VMM_OK || status == VMM_ERR_INVALID_ARGUMENT);
        if (status == VMM_OK) /* only the nonce, the uuid or the block changed */
            vmm__share_close(share);
        (void)close(own.sockets[1]);
        assert_int_equal(descriptors_open(), own.descriptors);
        assert_int_equal(vmm__host_outstanding(), 0);
    }
}

MESSAGE_TEST(too_many_open_files_lose_no_descriptor)
{
    struct rlimit before;
    struct share *share = share_make(8);
    struct share *received = NULL;
    assert_ok(vmm__message_send(share, scene->sockets[0]));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(STDERR_FILENO); /* the first free number */
    (void)close(next);
    struct rlimit few = { .rlim_cur = (rlim_t)next + 4, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    vmm_status status = vmm__message_receive(scene->sockets[1], &received);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_status(status, VMM_ERR_DRIVER);
    assert_non_null(strstr(vmm_last_error(), "no file descriptors left"));
    vmm__share_close(share);
}

MESSAGE_TEST(what_is_no_socket_is_refused)
{
    int ends[2];
    struct share *share = share_make(1);
    struct share *received = NULL;
    assert_int_equal(pipe(ends), 0);
    assert_status(vmm__message_send(share, ends[1]), VMM_ERR_DRIVER);
    assert_status(vmm__message_receive(ends[0], &received), VMM_ERR_DRIVER);
    assert_status(vmm__message_receive(-1, &received), VMM_ERR_DRIVER);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(scene->sockets[1]);
    assert_status(vmm__message_send(share, scene->sockets[0]), VMM_ERR_DRIVER); /* no SIGPIPE */
    vmm__share_close(share);
}
