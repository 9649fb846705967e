/*
 * Messages: a share on its way through a socket. A message has up to MESSAGE_CHUNKS chunks; a share with more chunks is
 * several messages in a row. There are two forms, which the magic number tells apart:
 *   descriptors of the chunks come with the message (SCM_RIGHTS), through a Unix socket;
 *   fabric handles of the chunks follow the message.
 *
 * Nothing that arrives is trusted: every field is checked, and the descriptors of a message that is refused are closed.
 * What a descriptor stands for is checked by the import.
 *
 * Owns: nothing. May be called by: cache/share, api. Locks: none.
 */
#ifndef VMM_CACHE_SHARE_MESSAGE_H
#define VMM_CACHE_SHARE_MESSAGE_H

#include "cache/share/share.h"

enum { MESSAGE_CHUNKS = 32 };

struct message {
    struct share_head head;
    uint32_t first; /* chunk of this message */
    uint32_t count; /* of its chunks */
    uint64_t chunk_bytes[MESSAGE_CHUNKS];
};

/* Sets the version, and the magic number of messages with descriptors. */
void vmm__message_head_set(struct share_head *head);

/* Sends a share: with descriptors if it has them and the socket takes them. ERR_INVALID_ARGUMENT: it has neither these
 * nor fabric handles for this socket; ERR_DRIVER: the socket refused it; if was_sent is set then, a part may have
 * arrived. */
vmm_status vmm__message_send(struct share *share, int socket);

/* Receives a share. ERR_INVALID_ARGUMENT: what arrived is none, or the other side closed the socket; ERR_DRIVER: the
 * socket failed; ERR_HOST_OOM. */
vmm_status vmm__message_receive(int socket, struct share **out);

#endif
