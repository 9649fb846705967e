/*
 * The screen by ncurses: see screen.h.
 *
 * Two views: all processes, with one selected, and one process. Arrows move the selection or scroll; Enter shows the
 * selected process; Escape, Backspace or the left arrow leads back; q ends.
 */
#define _GNU_SOURCE
#include "vmmtop/screen.h"
#include "vmmtop/table.h"

#include "base/time.h"
#include "text/utf8.h"

#include <curses.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEY_ESCAPE = 27, ESCAPE_MS = 25, NS_A_MS = 1000000, NS_A_SECOND = 1000000000, EXIT_BAD = 2 };

struct screen {
    struct processes *processes;
    uint64_t shown_pid; /* 0: all processes */
    int selected;       /* the number of a process's line */
    int top;            /* lines that are scrolled away; the title of all processes stays */
    bool ends;
};

/* The pid of the selected line; 0: there is none. */
static uint64_t pid_selected(const struct screen *screen)
{
    const struct processes *processes = screen->processes;
    int line = screen->selected;
    for (unsigned i = 0; i < processes->count; i++) {
        line -= (int)processes->items[i].now.head->caches;
        if (line < 0)
            return processes->items[i].pid;
    }
    return 0;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static bool is_process(char style)
{
    return style == TABLE_PROCESS || style == TABLE_SILENT;
}

static int attribute_of(char style, bool is_selected)
{
    if (style == TABLE_TITLE)
        return A_BOLD;
    if (is_process(style) && is_selected)
        return A_REVERSE;
    return style == TABLE_SILENT ? A_DIM : A_NORMAL;
}

static void line_draw(int row, const char *text, size_t length, int attribute)
{
    int used;
    size_t bytes = utf8_fit(text, length, COLS, &used);
    (void)attrset(attribute);
    (void)mvaddnstr(row, 0, text, (int)bytes);
    if (attribute == A_REVERSE)
        (void)mvchgat(row, 0, -1, A_REVERSE, 0, NULL);
    (void)attrset(A_NORMAL);
}

/* The first character of a line is its style. */
static const char *line_end(const char *line)
{
    return line + strcspn(line, "\n");
}

/* How many lines a text has, and how many of them are processes'. */
struct lines {
    int all;
    int processes;
};

static struct lines lines_count(const char *text)
{
    struct lines lines = { 0, 0 };
    for (; *text != '\0'; text = line_end(text) + 1) {
        lines.all++;
        lines.processes += is_process(*text);
    }
    return lines;
}

static int within(int value, int least, int most)
{
    return value > most ? (most > least ? most : least) : value < least ? least : value;
}

/* Keeps the selection on a line, and that line on the screen, with what follows the last one. */
static void scroll_to_selection(struct screen *screen, struct lines lines, int rows)
{
    int last = lines.processes - 1;
    screen->selected = within(screen->selected, 0, last);
    bool is_last = screen->selected == last;
    int end = is_last ? within(lines.all - 1, 0, screen->selected + rows) : screen->selected + 1;
    screen->top = within(screen->top, end - rows, screen->selected);
}

/* Draws what fits between the first row, which a list keeps for its title, and the last. */
static void text_draw(struct screen *screen, const char *text)
{
    struct lines lines = lines_count(text);
    bool is_list = screen->shown_pid == 0;
    int rows = LINES - 1 - is_list;
    int process = 0;
    if (is_list)
        scroll_to_selection(screen, lines, rows);
    screen->top = within(screen->top, 0, lines.all - is_list - rows);
    for (int line = 0; *text != '\0'; line++, text = line_end(text) + 1) {
        int row = is_list && line == 0 ? 0 : line - screen->top;
        bool is_shown = row >= (is_list && line > 0) && row < LINES - 1;
        if (is_shown)
            line_draw(row, text + 1, (size_t)(line_end(text) - text) - 1,
                      attribute_of(*text, process == screen->selected));
        process += is_process(*text);
    }
}

static void screen_draw(struct screen *screen)
{
    char *text = screen_text(screen->processes, screen->shown_pid);
    const char *keys = screen->shown_pid != 0 ? "arrows scroll   Esc all processes   q quit"
                                              : "arrows select   Enter one process   q quit";
    (void)erase();
    if (text != NULL && *text == '\0')
        (void)mvprintw(0, 0, "Process %llu does not publish.",
                       (unsigned long long)screen->shown_pid);
    else if (text != NULL)
        text_draw(screen, text);
    line_draw(LINES - 1, keys, strlen(keys), A_DIM);
    (void)refresh();
    free(text);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* The next draw keeps both within what there is. */
static void move_by(struct screen *screen, int lines)
{
    int *place = screen->shown_pid != 0 ? &screen->top : &screen->selected;
    *place = within(*place + lines, 0, INT_MAX);
}

static void view_change(struct screen *screen, uint64_t pid)
{
    screen->shown_pid = pid;
    screen->top = 0;
}

static void key_take(struct screen *screen, int key)
{
    switch (key) {
    case 'q':
    case 'Q':
        screen->ends = true;
        break;
    case KEY_UP:
        move_by(screen, -1);
        break;
    case KEY_DOWN:
        move_by(screen, 1);
        break;
    case KEY_PPAGE:
        move_by(screen, 2 - LINES);
        break;
    case KEY_NPAGE:
        move_by(screen, LINES - 2);
        break;
    case KEY_ENTER:
    case KEY_RIGHT:
    case '\n':
    case '\r':
        if (screen->shown_pid == 0)
            view_change(screen, pid_selected(screen));
        break;
    case KEY_ESCAPE:
    case KEY_BACKSPACE:
    case KEY_LEFT:
    case '\b':
    case 127:
        if (screen->processes->only == 0)
            view_change(screen, 0);
        break;
    default:
        break;
    }
}

/* Waits for a key, for so many milliseconds also if there is no terminal to read from. */
static int key_wait(int milliseconds)
{
    uint64_t end_ns = vmm__time_ns() + (uint64_t)milliseconds * NS_A_MS;
    timeout(milliseconds);
    int key = getch();
    uint64_t now_ns = vmm__time_ns();
    uint64_t rest_ns = key == ERR && now_ns < end_ns ? end_ns - now_ns : 0;
    struct timespec rest = { .tv_sec = (time_t)(rest_ns / NS_A_SECOND),
                             .tv_nsec = (long)(rest_ns % NS_A_SECOND) };
    (void)nanosleep(&rest, NULL);
    return key;
}

/* Draws at once after a key, and otherwise once in each period. */
static bool screen_loop(struct screen *screen, unsigned period_ms)
{
    uint64_t next_ns = 0;
    while (!screen->ends) {
        uint64_t now_ns = vmm__time_ns();
        if (now_ns >= next_ns) {
            if (!processes_scan(screen->processes))
                return false;
            next_ns = now_ns + (uint64_t)period_ms * NS_A_MS;
        }
        screen_draw(screen);
        key_take(screen, key_wait((int)((next_ns - now_ns) / NS_A_MS) + 1));
    }
    return true;
}

int screen_run(struct processes *processes, unsigned period_ms)
{
    struct screen screen = { .processes = processes, .shown_pid = processes->only };
    (void)set_escdelay(ESCAPE_MS);
    SCREEN *terminal = newterm(NULL, stdout, stdin);
    if (terminal == NULL) {
        (void)fprintf(stderr,
                      "vmmtop: the terminal cannot show a screen: set TERM, or use --once\n");
        return EXIT_BAD;
    }
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)curs_set(0);
    bool is_whole = screen_loop(&screen, period_ms);
    int failure = errno;
    (void)endwin();
    delscreen(terminal);
    if (is_whole)
        return 0;
    (void)fprintf(stderr, "vmmtop: cannot read %s: %s\n", processes->folder, strerror(failure));
    return EXIT_BAD;
}
