/* Sends shares and receives them: see message.h. */
#define _GNU_SOURCE
#include "cache/share/message.h"
#include "base/arith.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* headers before Linux 6.5 do not have it */
#endif

/* As little-endian bytes: "VMMshare", "VMMfabri". */
#define DESCRIPTOR_MAGIC UINT64_C(0x65726168734d4d56)
#define FABRIC_MAGIC     UINT64_C(0x69726261664d4d56)

enum { MESSAGE_VERSION = 1 };

/* The most descriptors that the kernel passes at once: a receiver with room for them closes all it did not ask for. */
enum { KERNEL_DESCRIPTORS_MOST = 253 };

/* Room for control data, aligned for its header. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(KERNEL_DESCRIPTORS_MOST * sizeof(int))];
};

void vmm__message_head_set(struct share_head *head)
{
    head->magic = DESCRIPTOR_MAGIC;
    head->version = MESSAGE_VERSION;
}

static vmm_status socket_failed(const char *function, const char *call, int socket)
{
    return vmm__error(VMM_ERR_DRIVER, "%s: %s(socket %d): %s (%d)", function, call, socket,
                      strerror(errno), errno);
}

/* An option of a socket that is a number; -1: the socket has no answer. */
static int socket_option(int socket, int option)
{
    int value = 0;
    socklen_t bytes = sizeof value;
    return getsockopt(socket, SOL_SOCKET, option, &value, &bytes) == 0 ? value : -1;
}

/* A socket of another type may lose a message, and cuts it. */
static vmm_status type_check(const char *function, int socket)
{
    int type = socket_option(socket, SO_TYPE);
    if (type < 0)
        return socket_failed(function, "getsockopt", socket);
    if (type == SOCK_STREAM || type == SOCK_SEQPACKET)
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "%s: socket %d has neither the type SOCK_STREAM nor SOCK_SEQPACKET", function,
                      socket);
}

/* Whether a call that failed is to be repeated. Waits for the socket if the program lets no call do so; a time limit
 * that the program set for the calls (SO_RCVTIMEO) is its own. */
static bool call_repeats(int socket, short event)
{
    struct pollfd ready = { .fd = socket, .events = event };
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN || (fcntl(socket, F_GETFL) & O_NONBLOCK) == 0)
        return false;
    return poll(&ready, 1, -1) >= 0 || errno == EINTR;
}

/* The chunks of the message that begins with chunk `first`. */
static uint32_t message_count(const struct share_head *head, uint32_t first)
{
    return (uint32_t)vmm__min(MESSAGE_CHUNKS, head->count - first);
}

/* ---- Send ---------------------------------------------------------------------------------- */

/* Attaches the descriptors of a message's chunks. */
static void descriptors_attach(struct msghdr *header, union control *control,
                               const struct shared_chunk *chunks, uint32_t count)
{
    header->msg_control = control->bytes;
    header->msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (uint32_t i = 0; i < count; i++)
        memcpy(CMSG_DATA(rights) + i * sizeof(int), &chunks[i].exported->descriptor, sizeof(int));
}

/* Sends bytes of a share as one packet, if the socket has packets. Control data goes with the first byte. */
static vmm_status bytes_send(int socket, struct share *share, struct msghdr *header, int flags)
{
    struct iovec *bytes = header->msg_iov;
    while (bytes->iov_len > 0) {
        ssize_t sent = sendmsg(socket, header, MSG_NOSIGNAL | flags);
        if (sent < 0 && call_repeats(socket, POLLOUT))
            continue;
        if (sent < 0)
            return socket_failed("vmm_share_send", "sendmsg", socket);
        atomic_store_explicit(&share->was_sent, true, memory_order_relaxed);
        bytes->iov_base = (char *)bytes->iov_base + sent;
        bytes->iov_len -= (size_t)sent;
        header->msg_control = NULL;
        header->msg_controllen = 0;
    }
    return VMM_OK;
}

static vmm_status descriptors_send(int socket, struct share *share, struct message *message)
{
    union control control;
    struct iovec bytes = { .iov_base = message, .iov_len = sizeof *message };
    struct msghdr header = { .msg_iov = &bytes, .msg_iovlen = 1 };
    memset(&control, 0, sizeof control);
    descriptors_attach(&header, &control, &share->chunks[message->first], message->count);
    return bytes_send(socket, share, &header, 0);
}

/* MSG_MORE: TCP would send the message alone, and hold the rest back until the other side has confirmed it. */
static vmm_status fabrics_send(int socket, struct share *share, struct message *message)
{
    struct driver_fabric fabrics[MESSAGE_CHUNKS];
    struct iovec bytes = { .iov_base = message, .iov_len = sizeof *message };
    struct msghdr header = { .msg_iov = &bytes, .msg_iovlen = 1 };
    for (uint32_t i = 0; i < message->count; i++)
        fabrics[i] = share->chunks[message->first + i].exported->fabric;
    vmm_status status = bytes_send(socket, share, &header, MSG_MORE);
    bytes = (struct iovec){ .iov_base = fabrics, .iov_len = message->count * sizeof *fabrics };
    return status == VMM_OK ? bytes_send(socket, share, &header, 0) : status;
}

static bool has_fabrics(const struct share *share)
{
    uint32_t count = 0;
    while (count < share->head.count && share->chunks[count].exported->has_fabric)
        count++;
    return count == share->head.count;
}

/* Chooses the form in which a share goes through a socket. Either all chunks of a share have descriptors, or none. */
static vmm_status magic_choose(const struct share *share, int socket, uint64_t *magic)
{
    vmm_status status = type_check("vmm_share_send", socket);
    if (status != VMM_OK)
        return status;
    bool is_unix = socket_option(socket, SO_DOMAIN) == AF_UNIX;
    bool has_descriptors = share->chunks[0].exported->descriptor != NO_DESCRIPTOR;
    *magic = is_unix && has_descriptors ? DESCRIPTOR_MAGIC : FABRIC_MAGIC;
    if (*magic == DESCRIPTOR_MAGIC || has_fabrics(share))
        return VMM_OK;
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_share_send: socket %d is not a Unix socket, and the share has no fabric "
                      "handles: only one of a pool with VMM_SHARE_FABRIC has, and it loses them "
                      "when a Unix socket passes it on",
                      socket);
}

vmm_status vmm__message_send(struct share *share, int socket)
{
    struct message message = { .head = share->head };
    vmm_status status = magic_choose(share, socket, &message.head.magic);
    for (uint32_t first = 0; first < share->head.count && status == VMM_OK;
         first += message.count) {
        message.first = first;
        message.count = message_count(&share->head, first);
        memset(message.chunk_bytes, 0, sizeof message.chunk_bytes);
        for (uint32_t i = 0; i < message.count; i++)
            message.chunk_bytes[i] = share->chunks[first + i].bytes;
        status = message.head.magic == FABRIC_MAGIC ? fabrics_send(socket, share, &message)
                                                    : descriptors_send(socket, share, &message);
    }
    return status;
}

/* ---- Receive ------------------------------------------------------------------------------- */

/* A message that arrives. */
struct arrival {
    struct message message;
    struct driver_fabric fabrics[MESSAGE_CHUNKS];
    int descriptors[MESSAGE_CHUNKS];
    uint32_t count;   /* of them */
    bool has_surplus; /* more came, and were closed */
};

static void arrival_close(struct arrival *arrival)
{
    while (arrival->count > 0)
        (void)close(arrival->descriptors[--arrival->count]);
}

/* Takes a descriptor that came as control data of a type. Only SCM_RIGHTS are the sender's: the kernel also adds one of
 * the sender's process (SCM_PIDFD) if the program has asked for it. */
static void descriptor_take(struct arrival *arrival, int type, int descriptor)
{
    if (type != SCM_RIGHTS) {
        (void)close(descriptor);
        return;
    }
    if (arrival->count < MESSAGE_CHUNKS) {
        arrival->descriptors[arrival->count++] = descriptor;
        return;
    }
    arrival->has_surplus = true;
    (void)close(descriptor);
}

static void descriptors_take(struct arrival *arrival, struct msghdr *header)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control != NULL;
         control = CMSG_NXTHDR(header, control)) {
        int type = control->cmsg_type;
        if (control->cmsg_level != SOL_SOCKET || (type != SCM_RIGHTS && type != SCM_PIDFD))
            continue;
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(control) + i * sizeof(int), sizeof descriptor);
            descriptor_take(arrival, type, descriptor);
        }
    }
}

static vmm_status message_refuse(const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                      "vmm_share_receive: not a whole message of vmm_share_send(): %s", why);
}

/* Receives the next bytes of a message, and the descriptors that come with them. */
static vmm_status part_receive(int socket, struct arrival *arrival, struct iovec *bytes)
{
    union control control;
    struct msghdr header = { .msg_iov = bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control };
    ssize_t got;
    do
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    while (got < 0 && call_repeats(socket, POLLIN));
    if (got < 0)
        return socket_failed("vmm_share_receive", "recvmsg", socket);
    descriptors_take(arrival, &header);
    if ((header.msg_flags & MSG_CTRUNC) != 0)
        return vmm__error(
            VMM_ERR_DRIVER,
            "vmm_share_receive: the process has no file descriptors left for those of "
            "the share (RLIMIT_NOFILE)");
    if ((header.msg_flags & MSG_TRUNC) != 0)
        return message_refuse("it is too long");
    if (got == 0)
        return message_refuse(bytes->iov_base == &arrival->message
                                  ? "the other side has closed the socket"
                                  : "it is cut short");
    bytes->iov_base = (char *)bytes->iov_base + got;
    bytes->iov_len -= (size_t)got;
    return VMM_OK;
}

/* On such a socket a message is one packet, so nothing can follow a short one. */
static bool has_packets(int socket)
{
    return socket_option(socket, SO_TYPE) == SOCK_SEQPACKET;
}

/* Receives bytes of a message. On failure it has no descriptors left. */
static vmm_status bytes_receive(int socket, struct arrival *arrival, void *buffer, size_t count)
{
    struct iovec bytes = { .iov_base = buffer, .iov_len = count };
    vmm_status status = VMM_OK;
    while (bytes.iov_len > 0 && status == VMM_OK) {
        status = part_receive(socket, arrival, &bytes);
        if (status == VMM_OK && bytes.iov_len > 0 && has_packets(socket))
            status = message_refuse("it is cut short");
    }
    if (status != VMM_OK)
        arrival_close(arrival);
    return status;
}

static vmm_status arrival_receive(int socket, struct arrival *arrival)
{
    return bytes_receive(socket, arrival, &arrival->message, sizeof arrival->message);
}

static vmm_status head_check(const struct share_head *head)
{
    if (head->magic != DESCRIPTOR_MAGIC && head->magic != FABRIC_MAGIC)
        return message_refuse("its magic number is wrong");
    if (head->version != MESSAGE_VERSION)
        return message_refuse("another version of the library sent it");
    if (head->count == 0 || head->count > SHARE_CHUNKS_MOST)
        return message_refuse("its number of chunks is impossible");
    return VMM_OK;
}

/* Checks a message that must bring the chunks of a share from `first` on. */
static vmm_status arrival_check(const struct arrival *arrival, const struct share_head *head,
                                uint32_t first)
{
    const struct message *message = &arrival->message;
    if (memcmp(&message->head, head, sizeof *head) != 0)
        return message_refuse("it belongs to another share than the one before");
    if (message->first != first || message->count != message_count(head, first))
        return message_refuse("its chunks are not those that must come next");
    return VMM_OK;
}

/* Receives what follows a message that was checked. Then it has everything: either descriptors or fabric handles. */
static vmm_status arrival_complete(int socket, struct arrival *arrival)
{
    const struct message *message = &arrival->message;
    bool is_fabric = message->head.magic == FABRIC_MAGIC;
    vmm_status status = VMM_OK;
    if (is_fabric)
        status = bytes_receive(socket, arrival, arrival->fabrics,
                               message->count * sizeof *arrival->fabrics);
    if (status == VMM_OK &&
        (arrival->has_surplus || arrival->count != (is_fabric ? 0 : message->count)))
        return message_refuse("it has another number of descriptors than of chunks");
    return status;
}

/* Moves the chunks of a message into a share. */
static vmm_status arrival_move(struct arrival *arrival, struct share *share, uint64_t *sum)
{
    const struct message *message = &arrival->message;
    for (uint32_t i = 0; i < message->count; i++) {
        uint64_t bytes = message->chunk_bytes[i];
        if (bytes == 0 || !vmm__add_checked(*sum, bytes, sum))
            return message_refuse("its sizes are impossible");
        share->chunks[message->first + i].bytes = bytes;
    }
    for (uint32_t i = message->count; i-- > 0;) {
        struct shared_chunk *chunk = &share->chunks[message->first + i];
        vmm_status status = vmm__share_chunk_open("vmm_share_receive", chunk);
        if (status != VMM_OK)
            return status;
        chunk->exported->has_fabric = message->head.magic == FABRIC_MAGIC;
        if (chunk->exported->has_fabric)
            chunk->exported->fabric = arrival->fabrics[i];
        else
            chunk->exported->descriptor = arrival->descriptors[--arrival->count];
    }
    return VMM_OK;
}

static vmm_status block_check(const struct share_head *head, uint64_t sum)
{
    if (head->offset >= sum || head->bytes > sum - head->offset ||
        !vmm__is_aligned(head->offset, SHARE_OFFSET_UNIT_BYTES))
        return message_refuse("its block does not lie in its chunks");
    return VMM_OK;
}

/* Receives the rest of a share whose first message has arrived. */
static vmm_status rest_receive(int socket, struct arrival *arrival, struct share *share)
{
    uint64_t sum = 0;
    uint32_t first = 0;
    vmm_status status = VMM_OK;
    while (status == VMM_OK && first < share->head.count) {
        if (first > 0)
            status = arrival_receive(socket, arrival);
        if (status == VMM_OK)
            status = arrival_check(arrival, &share->head, first);
        if (status == VMM_OK)
            status = arrival_complete(socket, arrival);
        if (status == VMM_OK)
            status = arrival_move(arrival, share, &sum);
        first += arrival->message.count;
    }
    return status == VMM_OK ? block_check(&share->head, sum) : status;
}

vmm_status vmm__message_receive(int socket, struct share **out)
{
    struct arrival arrival = { .count = 0 };
    struct share *share;
    vmm_status status = type_check("vmm_share_receive", socket);
    if (status == VMM_OK)
        status = arrival_receive(socket, &arrival);
    if (status != VMM_OK)
        return status;
    status = head_check(&arrival.message.head);
    if (status == VMM_OK)
        status = vmm__share_open("vmm_share_receive", arrival.message.head.count, &share);
    if (status != VMM_OK) {
        arrival_close(&arrival);
        return status;
    }
    share->head = arrival.message.head;
    status = rest_receive(socket, &arrival, share);
    if (status == VMM_OK) {
        *out = share;
        return VMM_OK;
    }
    arrival_close(&arrival);
    vmm__share_close(share);
    return status;
}
