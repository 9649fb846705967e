/* Sizes and shares as people write them; and the sizes that are written, read again. */
#include "parser.h"

#include "base/size.h"

/* What is a size by its letters: digits, perhaps a point and more, and a unit. */
static bool has_form(const char *text, const char *units[], int count)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0)
        return false;
    text += digits;
    if (*text == '.')
        text += 1 + strspn(text + 1, "0123456789");
    for (int i = 0; i < count; i++) {
        if (strcmp(text, units[i]) == 0)
            return true;
    }
    return false;
}

static bool is_size(const char *text)
{
    static const char *units[] = { "", "B", "K", "KiB", "M", "MiB", "G", "GiB", "T", "TiB" };
    return has_form(text, units, 10);
}

static bool is_share(const char *text)
{
    static const char *units[] = { "%" };
    return has_form(text, units, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { MARK = 77 };
    char *text = text_of(data, bytes);
    char written[32];
    uint64_t whole = UINT64_C(1) << (bytes % 63);
    uint64_t size = MARK;
    uint64_t share = MARK;
    bool is_read = vmm__size_parse(text, &size);
    must(is_read ? is_size(text) && size < UINT64_C(1) << 63 : size == MARK);
    bool either = vmm__size_or_share_parse(text, whole, &share);
    must(!is_read || (either && share == size));
    must(!either || is_read || (is_share(text) && share < UINT64_C(1) << 63));
    must(either || share == MARK);
    must(strlen(text) > 7 || is_read == is_size(text)); /* as many TiB as six digits say are some */
    must(*vmm__size_write(written, sizeof written, size) != '\0');
    free(text);
    return 0;
}
