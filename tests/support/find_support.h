/*
 * vmm_find(), compared with what adapters ask instead of it.
 */
#ifndef VMM_FIND_SUPPORT_H
#define VMM_FIND_SUPPORT_H

#include "support/test_support.h"

#include "api/find.h"
#include "base/error.h"
#include "base/outcome.h"

#include <string.h>

/* vmm_find(). vmm__find_owned() must say the same of the block, but knows no reserved ones; and leaves no error if
 * there is none. */
static inline vmm_status both_find(vmm_cache *cache, const void *address, vmm_item *item)
{
    vmm_status status = vmm_find(cache, address, item);
    struct owned_block owned;
    struct error_line line;
    vmm__error_save(&line);
    vmm_status answer = vmm__find_owned(cache, address, &owned);
    assert_string_equal(vmm_last_error(), line.text);
    if (status != VMM_OK) {
        assert_status(status, VMM_ERR_UNKNOWN_POINTER);
        assert_status(answer, VMM__NOT_FOUND);
        return status;
    }
    if (item->is_reserved) {
        assert_true(answer == VMM__NOT_FOUND || owned.address == item->address);
        return status;
    }
    assert_ok(answer);
    assert_int_equal(owned.address, item->address);
    assert_int_equal(owned.requested_bytes, item->requested_bytes);
    assert_int_equal(owned.is_imported, item->is_imported);
    return status;
}

#endif
