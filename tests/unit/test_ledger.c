/* Accounts and their ledger: what is posted adds up, and peaks are exact or within their bounds. */
#define _GNU_SOURCE
#include "support/test_support.h"

#include "heap/ledger.h"

#include <time.h>

enum { ACCOUNTS = 4 };

/* The truth, counted at once. */
struct truth {
    uint64_t current;
    uint64_t peak;
    uint64_t allocated;
};

struct books {
    struct ledger ledger;
    struct account accounts[ACCOUNTS];
    struct truth requested;
    struct truth allocated;
    struct truth active;
    struct truth allocations;
};

static void books_open(struct books *books)
{
    *books = (struct books){ .ledger = { .is_shared = false } };
    for (int i = 0; i < ACCOUNTS; i++)
        vmm__account_init(&books->accounts[i]);
}

static void truth_raise(struct truth *truth, uint64_t amount)
{
    truth->current += amount;
    truth->peak = truth->current > truth->peak ? truth->current : truth->peak;
}

static void truth_take(struct truth *truth, uint64_t amount)
{
    truth->allocated += amount;
    truth_raise(truth, amount);
}

static void taken(struct books *books, int account, uint64_t requested_bytes, uint64_t bytes)
{
    vmm__account_take(&books->accounts[account], &books->ledger, requested_bytes, bytes);
    truth_take(&books->requested, requested_bytes);
    truth_take(&books->allocated, bytes);
    truth_take(&books->active, bytes);
    truth_take(&books->allocations, 1);
}

static void given(struct books *books, int account, uint64_t requested_bytes, uint64_t bytes,
                  bool waits)
{
    struct account *from = &books->accounts[account];
    if (waits)
        vmm__account_wait(from, bytes);
    vmm__account_give(from, &books->ledger, requested_bytes, bytes);
    books->requested.current -= requested_bytes;
    books->allocated.current -= bytes;
    books->allocations.current--;
    if (!waits)
        books->active.current -= bytes;
}

static void released(struct books *books, int account, uint64_t bytes)
{
    vmm__account_release(&books->accounts[account], bytes);
    books->active.current -= bytes;
}

static void posted(struct books *books, int account)
{
    vmm__account_post(&books->accounts[account], &books->ledger);
}

static void sum_compared(const struct figure *figure, const struct truth *truth)
{
    vmm_figure read = vmm__figure_read(figure);
    assert_int_equal(read.current, truth->current);
    assert_int_equal(read.allocated, truth->allocated);
    assert_int_equal(read.freed, truth->allocated - truth->current);
}

/* Posts all, after which the sums are true. */
static void books_compared(struct books *books)
{
    for (int i = 0; i < ACCOUNTS; i++)
        posted(books, i);
    sum_compared(&books->ledger.requested_bytes, &books->requested);
    sum_compared(&books->ledger.allocated_bytes, &books->allocated);
    sum_compared(&books->ledger.active_bytes, &books->active);
    sum_compared(&books->ledger.allocations, &books->allocations);
}

static void peaks_compared(const struct books *books)
{
    assert_int_equal(books->ledger.requested_bytes.peak, books->requested.peak);
    assert_int_equal(books->ledger.allocated_bytes.peak, books->allocated.peak);
    assert_int_equal(books->ledger.active_bytes.peak, books->active.peak);
    assert_int_equal(books->ledger.allocations.peak, books->allocations.peak);
}

static uint64_t random_below(uint64_t *seed, uint64_t limit)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (*seed >> 33) % limit;
}

static void peaks_of_turns_are_exact(void **state)
{
    (void)state;
    struct books books;
    books_open(&books);
    taken(&books, 0, 90, 100);
    given(&books, 0, 90, 100, false);
    posted(&books, 0);
    taken(&books, 1, 60, 70);
    posted(&books, 1);
    taken(&books, 0, 20, 20);
    given(&books, 0, 20, 20, false);
    posted(&books, 0);
    books_compared(&books);
    peaks_compared(&books);
    assert_int_equal(books.ledger.allocated_bytes.peak, 100);
    assert_int_equal(books.ledger.allocations.peak, 2);
}

static void what_waits_is_active(void **state)
{
    (void)state;
    struct books books;
    books_open(&books);
    taken(&books, 0, 100, 100);
    given(&books, 0, 100, 100, true);
    books_compared(&books);
    assert_int_equal(vmm__figure_now(&books.ledger.active_bytes), 100);
    assert_int_equal(vmm__figure_now(&books.ledger.allocated_bytes), 0);
    taken(&books, 0, 50, 50);
    released(&books, 0, 100);
    books_compared(&books);
    peaks_compared(&books);
    assert_int_equal(books.ledger.active_bytes.peak, 150);
    assert_int_equal(books.ledger.allocated_bytes.peak, 100);
}

/* The blocks of an account that a random sequence may give back, and those that wait. */
struct holdings {
    uint64_t blocks[64];
    unsigned count;
    uint64_t waiting[64];
    unsigned waiting_count;
};

static void books_step(struct books *books, struct holdings *holdings, int account,
                       uint64_t most_bytes, uint64_t *seed)
{
    struct holdings *own = &holdings[account];
    if (own->waiting_count > 0 && random_below(seed, 8) == 0) {
        released(books, account, own->waiting[--own->waiting_count]);
        posted(books, account); /* as pools do */
    } else if (own->count < 64 && random_below(seed, 2) == 0) {
        uint64_t bytes = 1 + random_below(seed, most_bytes);
        taken(books, account, bytes, bytes);
        own->blocks[own->count++] = bytes;
    } else if (own->count > 0) {
        uint64_t bytes = own->blocks[--own->count];
        bool waits = own->waiting_count < 64 && random_below(seed, 4) == 0;
        given(books, account, bytes, bytes, waits);
        if (waits)
            own->waiting[own->waiting_count++] = bytes;
    }
}

/* An account is posted whenever another's turn begins. */
static void random_turns_are_exact(void **state)
{
    (void)state;
    struct books books;
    struct holdings holdings[ACCOUNTS] = { { .count = 0 } };
    uint64_t seed = 7;
    int account = 0;
    books_open(&books);
    for (int round = 0; round < 50000; round++) {
        if (random_below(&seed, 5) == 0) {
            posted(&books, account);
            account = (int)random_below(&seed, ACCOUNTS);
        }
        books_step(&books, holdings, account, GIB, &seed);
    }
    books_compared(&books);
    peaks_compared(&books);
}

static void postings_in_any_order_add_up(void **state)
{
    (void)state;
    struct books books;
    struct holdings holdings[ACCOUNTS] = { { .count = 0 } };
    uint64_t seed = 8;
    books_open(&books);
    for (int round = 0; round < 20000; round++) {
        books_step(&books, holdings, (int)random_below(&seed, ACCOUNTS), GIB, &seed);
        if (random_below(&seed, 4) == 0)
            posted(&books, (int)random_below(&seed, ACCOUNTS));
        if (round % 1000 == 0)
            books_compared(&books);
    }
    books_compared(&books);
}

static void near(uint64_t value, uint64_t wanted, uint64_t bound)
{
    assert_true(value <= wanted + bound && wanted <= value + bound);
}

/* For each account the widest slack that any has had. */
static uint64_t slack_seen(const struct books *books, uint64_t *widest)
{
    for (int i = 0; i < ACCOUNTS; i++) {
        uint64_t slack = books->accounts[i].slack_bytes;
        *widest = slack > *widest ? slack : *widest;
    }
    return ACCOUNTS * *widest;
}

/* Nobody posts by hand. */
static void a_shared_ledger_is_off_by_little(void **state)
{
    (void)state;
    static const uint64_t most[] = { 4096, MIB, GIB };
    for (int i = 0; i < 3; i++) {
        struct books books;
        struct holdings holdings[ACCOUNTS] = { { .count = 0 } };
        uint64_t seed = 9;
        uint64_t widest = 0;
        books_open(&books);
        books.ledger.is_shared = true;
        for (int account = 0; account < ACCOUNTS; account++)
            posted(&books, account);
        for (int round = 0; round < 20000; round++) {
            books_step(&books, holdings, (int)random_below(&seed, ACCOUNTS), most[i], &seed);
            uint64_t bound = slack_seen(&books, &widest);
            assert_true(widest <= 4 * MIB || widest <= books.ledger.allocated_bytes.peak / 8 ||
                        widest <= books.ledger.allocated_bytes.peak / 256);
            near(vmm__figure_now(&books.ledger.allocated_bytes), books.allocated.current, bound);
            near(vmm__figure_now(&books.ledger.active_bytes), books.active.current, bound);
            near(books.ledger.allocated_bytes.peak, books.allocated.peak, bound);
            near(books.ledger.active_bytes.peak, books.active.peak, bound);
        }
        books_compared(&books);
    }
}

/* What changes much, but not all the time, is known to 1/256. */
static void postings_that_are_far_apart_are_close(void **state)
{
    (void)state;
    const struct timespec pause = { .tv_nsec = 1200000 };
    struct books books;
    struct holdings holdings[ACCOUNTS] = { { .count = 0 } };
    uint64_t seed = 10;
    books_open(&books);
    books.ledger.is_shared = true;
    for (int round = 0; round < 2000; round++)
        books_step(&books, holdings, (int)random_below(&seed, ACCOUNTS), GIB, &seed);
    uint64_t widest = 0;
    for (int round = 0; round < 100; round++) {
        (void)nanosleep(&pause, NULL);
        if (round < ACCOUNTS) {
            posted(&books, round); /* as policy does now and then */
            widest = 0;
            (void)nanosleep(&pause, NULL);
        }
        books_step(&books, holdings, round % ACCOUNTS, GIB, &seed);
        (void)slack_seen(&books, &widest);
    }
    assert_true(widest <= books.ledger.allocated_bytes.peak / 256 + 4 * MIB);
    books_compared(&books);
}

static void an_unshared_account_is_posted_only_when_asked(void **state)
{
    (void)state;
    struct books books;
    books_open(&books);
    taken(&books, 0, TIB, TIB);
    given(&books, 0, TIB, TIB, false);
    assert_int_equal(vmm__figure_read(&books.ledger.allocated_bytes).allocated, 0);
    books.ledger.is_shared = true;
    posted(&books, 0);
    taken(&books, 0, 5 * GIB, 5 * GIB);
    assert_int_equal(vmm__figure_now(&books.ledger.allocated_bytes), 5 * GIB);
    books_compared(&books);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_of_turns_are_exact),
        cmocka_unit_test(what_waits_is_active),
        cmocka_unit_test(random_turns_are_exact),
        cmocka_unit_test(postings_in_any_order_add_up),
        cmocka_unit_test(a_shared_ledger_is_off_by_little),
        cmocka_unit_test(postings_that_are_far_apart_are_close),
        cmocka_unit_test(an_unshared_account_is_posted_only_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
