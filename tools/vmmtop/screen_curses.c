/*
 * The screen by ncurses: see screen.h.
 *
 * Two views: all processes, with one selected, and one process. Arrows move the selection or scroll; Enter shows the
 * selected process; Escape, Backspace or the left arrow leads back; q ends.
 */
#define _GNU_SOURCE
#include "vmmtop/screen.h"
#include "vmmtop/table.h"

#include <curses.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ESCAPE = 27, ESCAPE_MS = 25, EXIT_BAD = 2 };

struct screen {
    struct processes *processes;
    uint64_t shown_pid; /* 0: all processes */
    int selected;       /* the number of a line with the style TABLE_PROCESS */
    int lines;          /* with that style, at the last draw */
    int top;            /* lines of one process that are scrolled away */
    bool ends;
};

static const struct process *process_shown(const struct screen *screen)
{
    const struct processes *processes = screen->processes;
    for (unsigned i = 0; i < processes->count && screen->shown_pid != 0; i++) {
        if (processes->items[i].pid == screen->shown_pid)
            return &processes->items[i];
    }
    return NULL;
}

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

static int attribute_of(const struct screen *screen, char style, int line)
{
    if (style == TABLE_TITLE)
        return A_BOLD;
    return style == TABLE_PROCESS && line == screen->selected ? A_REVERSE : A_NORMAL;
}

static void line_draw(int row, const char *text, size_t length, int attribute)
{
    int columns = COLS < (int)length ? COLS : (int)length;
    (void)attrset(attribute);
    (void)mvaddnstr(row, 0, text, columns);
    if (attribute == A_REVERSE)
        (void)mvchgat(row, 0, -1, A_REVERSE, 0, NULL);
    (void)attrset(A_NORMAL);
}

static void text_draw(struct screen *screen, const char *text)
{
    int row = -screen->top;
    int line = 0;
    for (; *text != '\0' && row < LINES - 1; row++) {
        size_t length = strcspn(text, "\n");
        if (row >= 0)
            line_draw(row, text + 1, length - 1, attribute_of(screen, *text, line));
        line += *text == TABLE_PROCESS;
        text += length + (text[length] == '\n');
    }
    screen->lines = line;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        screen->lines += *text == TABLE_PROCESS;
        text += length + (text[length] == '\n');
    }
}

static void screen_draw(struct screen *screen)
{
    const struct process *process = process_shown(screen);
    char *text = screen_text(screen->processes, process);
    const char *keys = process != NULL || screen->shown_pid != 0
                           ? "arrows scroll   Esc all processes   q quit"
                           : "arrows select   Enter one process   q quit";
    (void)erase();
    if (screen->shown_pid != 0 && process == NULL)
        (void)mvprintw(0, 0, "Process %llu does not publish.",
                       (unsigned long long)screen->shown_pid);
    else if (text != NULL)
        text_draw(screen, text);
    line_draw(LINES - 1, keys, strlen(keys), A_DIM);
    (void)refresh();
    free(text);
}

static void move_by(struct screen *screen, int lines)
{
    int *place = screen->shown_pid != 0 ? &screen->top : &screen->selected;
    *place += lines;
    if (screen->shown_pid == 0 && *place >= screen->lines)
        *place = screen->lines - 1;
    *place = *place < 0 ? 0 : *place;
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

/* Draws at once after a key, and otherwise once in each period. */
static bool screen_loop(struct screen *screen, unsigned period_ms)
{
    timeout((int)period_ms);
    while (!screen->ends) {
        if (!processes_scan(screen->processes))
            return false;
        screen_draw(screen);
        for (int key = getch(); key != ERR && !screen->ends; key = getch()) {
            key_take(screen, key);
            if (screen->ends)
                break;
            screen_draw(screen);
        }
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
